"""A bucket: obstore's functions in worker threads, with a timeout and translated errors.

obstore's asynchronous functions are not used: they may abort the process as it ends. Its stores do not
survive a fork.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, TypeVar, TypeVarTuple

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from domain.errors import StorageError, StoreFull, StoreUnavailable
from storage.base.threads import Threads, log_error

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore as Client

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
THREADS = 16
PAGE = 1000
PART = 5 << 20
"""Bytes of one part of an upload; the least that S3 accepts."""

_PARTS_AT_ONCE = 2
_NO_BUCKET = "has no such bucket"
_STATUS = re.compile(r"status code: (\d{3})")


class Bucket:
    """The methods without `async` block: call them from a job that `run` executes. All raise
    StoreUnavailable, and StoreFull if the store answers 507. The messages quote nothing of the store's
    answers."""

    def __init__(self, client: "Client", timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._threads = Threads(THREADS, "objects")
        self._idle = asyncio.Semaphore(THREADS)

    async def run(self, job: Callable[[*Ts], T], *args: *Ts, parts: int = 1) -> T:
        """Returns the result of `job(*args)`. After `timeout` for each part the caller gets StoreUnavailable.
        A job that has a thread by then still runs to its end; one that has none never runs."""
        try:
            async with asyncio.timeout(self._timeout * parts):
                return await asyncio.shield(await self._begin(job, *args))
        except TimeoutError:
            raise _unavailable("did not answer in time") from None

    async def detach(self, job: Callable[[], None]) -> None:
        """Runs `job` in the background if a thread is idle, else discards it. Ignores its StorageError."""

        def quietly() -> None:
            with suppress(StorageError):
                job()

        if not self._idle.locked():
            (await self._begin(quietly)).add_done_callback(log_error)

    async def _begin(self, job: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        # A queue of jobs would hold their bodies for as long as the store does not answer.
        await self._idle.acquire()
        running = self._threads.begin(job, *args)
        running.add_done_callback(lambda _: self._idle.release())
        return running

    def get(self, path: str) -> "tuple[bytes, UpdateVersion] | None":
        """None if there is no such object."""
        with _translated():
            try:
                answer = obstore.get(self._client, path)
                version = {"e_tag": answer.meta["e_tag"], "version": answer.meta["version"]}
                return bytes(answer.bytes()), version  # type: ignore[return-value]
            except FileNotFoundError:
                return None

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        """Fewer bytes if the object ends before `end`. None if there is no such object."""
        with _translated():
            try:
                return bytes(obstore.get_range(self._client, path, start=start, end=end))
            except FileNotFoundError:
                return None

    def size(self, path: str) -> int | None:
        """Bytes of the object. None if there is no such object."""
        with _translated():
            try:
                return obstore.head(self._client, path)["size"]
            except FileNotFoundError:
                return None

    def put(self, path: str, data: bytes | IO[bytes]) -> None:
        """Uploads the data; in parts if it is larger than a part."""
        with _translated():
            obstore.put(self._client, path, data, chunk_size=PART, max_concurrency=_PARTS_AT_ONCE)

    def create(self, path: str, data: bytes) -> bool:
        """Creates an object. False if it already exists. Of many concurrent calls only one returns True."""
        with _translated():
            try:
                obstore.put(self._client, path, data, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def update(self, path: str, data: bytes, version: "UpdateVersion") -> bool:
        """Replaces an object. False if the object has another version, or was deleted."""
        with _translated():
            try:
                known = {name: value for name, value in version.items() if value is not None}
                obstore.put(self._client, path, data, mode=known)  # type: ignore[arg-type]
            except (PreconditionError, FileNotFoundError):
                return False
            return True

    def delete(self, paths: Sequence[str]) -> None:
        with _translated():
            try:
                obstore.delete(self._client, list(paths))
            except FileNotFoundError:
                # One at a time on other stores than S3: there a missing object would stop the deletion of the
                # others.
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._client, path)

    async def pages(self, folder: str) -> "AsyncIterator[Sequence[ObjectMeta]]":
        """Lists what is in `folder` and its folders, ordered by path, at most 1,000 objects at a time."""
        stream = obstore.list(self._client, folder, chunk_size=PAGE)
        while page := await self.run(self._next, stream):
            yield page

    def _next(self, stream: "Iterator[Sequence[ObjectMeta]]") -> "Sequence[ObjectMeta]":
        with _translated():
            return next(stream, ())

    async def close(self) -> None:
        await self._threads.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError):
        raise _unavailable("refused the credentials, or they lack a permission") from None
    except FileNotFoundError:
        raise _unavailable(_NO_BUCKET) from None
    except BaseError as error:
        status = _STATUS.search(str(error))
        if status is not None and status[1] == "507":
            raise StoreFull("The object store has no room left. Give it more, or delete results.") from None
        known = {None: "did not answer", "404": _NO_BUCKET}
        code = None if status is None else status[1]
        raise _unavailable(known.get(code, f"answered with status {code}")) from None


def _unavailable(what: str) -> StoreUnavailable:
    return StoreUnavailable(f"The object store {what}.")
