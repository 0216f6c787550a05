"""read-grep: a model searches one stored result with two tools, Read and Grep."""
