"""Reading a stored result back: from a handle to its lines and matches, and what that costs."""
