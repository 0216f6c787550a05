"""Bodies in an object store: S3, Google Cloud Storage or Azure, through obstore (the extra `s3`)."""
