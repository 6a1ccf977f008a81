"""Sessions in S3 buckets: the store behind `s3://bucket/prefix`."""
