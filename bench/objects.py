"""The object store over loopback: storing and reading 20 MB, against obstore alone. Needs `.objects`."""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import obstore
from obstore.store import S3Store

from bench.redis import known_of, new_handle, now
from storage import open_store

ROUNDS = 9
MB = 1_000_000
BODY = os.urandom(20 * MB)
CHUNK = 1 << 18
PYTHON = Path(".objects/bin/python")


def main() -> None:
    if not PYTHON.exists():
        print("skipped: no .objects, see `make objects-test`")
        return
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    command = [PYTHON, "tests/objects/moto_server.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as moto:
        assert moto.stdout is not None
        endpoint = f"http://127.0.0.1:{int(moto.stdout.readline())}"
        httpx.put(f"{endpoint}/bench", trust_env=False).raise_for_status()
        try:
            asyncio.run(_measure(endpoint))
        finally:
            moto.kill()


async def _measure(endpoint: str) -> None:
    bare = S3Store("bench", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
    url = f"s3://bench/spillgate?endpoint={endpoint}&region=us-east-1&timeout=60&cache_bytes=0"
    store = await open_store(url, clock=now, retention_seconds=3600, max_bytes=0)
    known = last = known_of(BODY)

    async def put() -> None:
        nonlocal last
        last = replace(known, handle=new_handle())
        async with store.draft("default") as draft:
            for start in range(0, len(BODY), CHUNK):
                await draft.write(BODY[start : start + CHUNK])
            await draft.publish(last)

    async def read() -> None:
        assert sum([len(chunk) async for chunk in store.read(last)]) == len(BODY)

    async def bare_put() -> None:
        await asyncio.to_thread(obstore.put, bare, "bare", BODY)

    async def bare_single_put() -> None:
        await asyncio.to_thread(lambda: obstore.put(bare, "bare", BODY, use_multipart=False))

    async def bare_read() -> None:
        await asyncio.to_thread(lambda: bytes(obstore.get(bare, "bare").bytes()))

    acts: dict[str, Callable[[], Awaitable[None]]] = {
        "obstore.put, as it is called by default (multipart)": bare_put,
        "obstore.put, one request": bare_single_put,
        "stored: draft, segments, info": put,
        "obstore.get": bare_read,
        "read, segment by segment, checked": read,
    }
    took: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(ROUNDS):
        # In turn, so that all see the same machine.
        for name, act in acts.items():
            began = time.perf_counter()
            await act()
            took[name].append(time.perf_counter() - began)
    await store.close()
    for name, seconds in took.items():
        print(f"{name:52} {len(BODY) / MB / statistics.median(seconds):7.0f} MB/s")


if __name__ == "__main__":
    main()
