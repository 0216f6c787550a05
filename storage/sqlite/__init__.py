"""Sessions and accounting in SQLite, in one file or in memory. `state` makes room for tenants.

One writer commits the waiting changes together, so that many requests share one sync of the disk.
"""
