"""The command line: `spillgate serve`, and every other command."""
