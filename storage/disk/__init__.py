"""Bodies as plain files under one directory."""
