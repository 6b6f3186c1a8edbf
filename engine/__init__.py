"""What runs: everything that imports a TVM, each in a child process of its own."""
