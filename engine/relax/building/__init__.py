"""From a Relax program to a function that runs."""
