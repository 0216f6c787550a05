"""HTTP: who calls, how large the body is, what it asks for, and the answer."""
