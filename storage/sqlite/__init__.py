"""Sessions and accounting in one SQLite file."""
