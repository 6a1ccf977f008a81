#!/usr/bin/env python3
"""Makes the bucket that $BUCKET names, if it is not there.

The server and the credentials are found as by any tool for AWS.
"""

import os

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
try:
    client.create_bucket(Bucket=os.environ["BUCKET"])
except ClientError as exc:
    if exc.response["Error"]["Code"] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
        raise
client.head_bucket(Bucket=os.environ["BUCKET"])  # ours, and not only taken
