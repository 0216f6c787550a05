"""The contract suite of ResultStore, over a server of the S3 protocol."""

from test_result_store import *  # noqa: F403
