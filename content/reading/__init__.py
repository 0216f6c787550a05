"""Reading a stored result: lines, matches of a pattern, one-line data pretty-printed for both."""
