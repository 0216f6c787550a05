"""Bodies as plain files under one directory, readable with cat and grep, and durable once published.

A body and its info are written as drafts, synced, and renamed: a crash leaves a whole result or none.
"""
