"""Bodies in an object store (S3, Google Cloud, Azure) through obstore.

An info is written only if its version is the expected one, so that replicas need no lock.
"""
