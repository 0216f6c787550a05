"""Requests to addresses without TLS. To read the certificates of the machine takes 40 ms of processing."""

from functools import partial

import httpx

get = partial(httpx.get, verify=False, trust_env=False)
put = partial(httpx.put, verify=False, trust_env=False)
