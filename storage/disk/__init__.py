"""Bodies as plain files under one directory, readable with cat and grep, and durable once published."""
