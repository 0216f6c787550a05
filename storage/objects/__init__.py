"""Bodies in an object store (S3, Google Cloud, Azure) through obstore."""
