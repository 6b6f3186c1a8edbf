"""What travels between an engine and who asks it: plain data, without torch or a TVM."""
