"""Bodies in an object store (S3, Google Cloud, Azure) through obstore.

Writes of an info are conditional on its version, so that replicas need no lock between them.
"""
