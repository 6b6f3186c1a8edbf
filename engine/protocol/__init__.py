"""What an engine and its callers send each other: plain data, without torch or a TVM."""
