"""Results as rows and sentences, the same for the page and the command line."""
