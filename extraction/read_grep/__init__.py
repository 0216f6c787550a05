"""read-grep: a sub-agent with two tools, Read and Grep, on one stored result."""
