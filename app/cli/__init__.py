"""The command line: a function `run` for each command."""
