"""What a frontend does not know, written with operators that it knows."""
