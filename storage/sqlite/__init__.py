"""Sessions and accounting in one SQLite file.

One writer commits the waiting changes together, so that many requests share one sync of the disk.
"""
