"""What building needs in either IR: devices, options, threads, the generated code."""
