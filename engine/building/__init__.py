"""What building needs in either IR: devices, options, threads, the code of what was built."""
