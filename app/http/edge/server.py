"""Serving: a clean stop, and one sweep a second over the open connections."""

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from functools import partial
from types import FrameType
from typing import cast
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from app import __version__
from app.config_report import mask_url
from app.http.api.problems import OnRefusal
from app.http.edge.address_file import announced
from app.http.edge.deadlines import MAX_CONNECTIONS, Protocol, sweep
from app.http.edge.sockets import BACKLOG, Sockets, open_sockets
from app.operations.idle import IdleWatch
from app.operations.logs import configure_logging, flush_log
from app.operations.tracing import trace_target
from app.policy_reload import reload_policies
from app.settings import Settings
from machine.addresses import address_path, socket_path

log = logging.getLogger(__name__)
uvicorn_log = logging.getLogger("uvicorn.error")

KEEP_ALIVE_SECONDS = 65
GRACEFUL_SECONDS = 25
_NO_MODEL = "none, unless the policy file names a backend: questions are answered by retrieval"

EXTRACT_SECONDS = 20
"""The seconds that a running extraction has to end by itself after the service is told to stop."""

STOP_SECONDS = 29
SWEEP_SECONDS = 1.0
SETTLE_SECONDS = 1.0
"""The seconds from the start to `settle_memory`, so that the first requests do not wait for it."""

YOUNG_OBJECTS = 10_000
"""New objects before a garbage collection. Python's 700 cost a result of 2 KB a twentieth of its rate
(bench/README.md); what a request leaves behind holds no cycles."""
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h.
_MALLOC = {-8: 1, -3: 2 << 20, -1: 32 << 20}

SPARE_FILES = 128
"""File descriptors that connections must leave for the stores."""


class Server(uvicorn.Server):
    """Stops taking writes before it stops listening, and is gone within half a minute. Stops, too, when the
    application cannot go on: a process that answers /livez serves the other routes as well."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        settings: Settings,
        sockets: Sockets,
        idle: IdleWatch | None = None,
    ) -> None:
        """If `idle` is given, it also stops when the service is idle."""
        super().__init__(config)
        self._app = app
        self._settings = settings
        self._sockets = sockets
        self._idle = idle
        self._owns_process = False
        """True if it serves in the main thread. In another thread it takes no signals of the process, and its
        stop does not end the process."""
        self._sweeper: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._owns_process = threading.current_thread() is threading.main_thread()
        self._sweeper = asyncio.create_task(self._app.state.supervisor.run("connections", self._sweep))
        # A terminal that is closed sends SIGHUP too: that still ends a service that was started there.
        if self._owns_process and not os.isatty(0):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, settle_memory)
        if self.started:
            self._say_where()

    def _say_where(self) -> None:
        """Logs the address, where results are kept, and which model answers questions."""
        settings, address = self._settings, self._sockets.address
        fields = {
            "address": address,
            "hooks": self._found_by(),
            "storage": mask_url(settings.store),
            "ledger": mask_url(settings.ledger),
            "model": ", ".join(settings.llm_models) or _NO_MODEL,
            "policy": settings.policy_file or "built in",
            "dashboard": None if settings.uds else f"{address}/ui",
            "docs": None if settings.uds else f"{address}/docs",
            "metrics": self._metrics_url(),
            "traces": self._traces_url(),
            "version": __version__,
        }
        log.info("listening", extra={"fields": fields, "block": True})

    def _found_by(self) -> str:
        """How the hooks and clients of this user find the service."""
        if self._sockets.path == socket_path():
            return f"find it by {socket_path()}"
        if fault := self._app.state.announcement.fault:
            where = self._sockets.url or self._sockets.address
            return f"need SPILLGATE_URL={where}: {address_path()}: {fault}"
        return f"find it by {address_path()}"

    def _metrics_url(self) -> str | None:
        if self._settings.metrics_listener is None:
            return None
        host = self._settings.metrics_listener[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self._app.state.metrics_port}/metrics"

    def _traces_url(self) -> str | None:
        """Scheme and host: path, options and login may hold a secret."""
        endpoint = trace_target().endpoint
        if endpoint is None:
            return None
        parts = urlsplit(endpoint)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        late = asyncio.get_running_loop().call_later(EXTRACT_SECONDS, self._app.state.stopping.set)
        await super().shutdown(sockets)
        late.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()

    @property
    def has_failed(self) -> bool:
        """True when the application's lifespan or the supervised sweep ended with an error."""
        swept = self._sweeper is not None and self._sweeper.done() and not self._sweeper.cancelled()
        return swept or bool(getattr(self.lifespan, "error_occurred", False))

    @property
    def _is_idle(self) -> bool:
        state = self.server_state
        return self._idle is not None and self._idle.is_over(state.total_requests, is_busy=bool(state.tasks))

    async def on_tick(self, counter: int) -> bool:
        if self.has_failed or self._is_idle:
            self._begin_stop()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not recorded as uvicorn does: it would raise the signal again at the end, and spoil the exit code.
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self._begin_stop()

    def _begin_stop(self) -> None:
        self._app.state.draining = True
        if self._owns_process and not self.should_exit:
            faulthandler.dump_traceback_later(STOP_SECONDS, exit=True, file=_stderr_that_never_waits())
        self.should_exit = True

    def _reload(self) -> None:
        state = self._app.state
        reloading = state.supervisor.run("policy reload", partial(reload_policies, state))
        self._reloading = asyncio.create_task(reloading)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            sweep(self.server_state.connections, loop.time())


def serve(app: FastAPI, settings: Settings, refused: OnRefusal, idle: IdleWatch | None = None) -> int:
    """Serves until SIGTERM, SIGINT or a fault that the process cannot recover from, or until `idle` is over.
    Returns the exit code. Raises ConfigError for what cannot be bound."""
    configure_logging(settings.log_level, settings.log_format)
    tune_memory()
    files = raise_open_files()
    # One that a client has started is found by its socket.
    is_announced = idle is None or settings.uds is None
    with (
        open_sockets(settings) as sockets,
        announced(sockets.url, sockets.path, is_announced) as announcement,
    ):
        app.state.metrics_port, app.state.announcement = sockets.metrics_port, announcement
        app.state.address = sockets.address
        server = Server(_config(app, files, refused), app, settings, sockets, idle)
        # The caller tells a ConfigError; uvicorn would tell it once more.
        uvicorn_log.addFilter(tells := lambda record: app.state.config_error is None)
        try:
            server.run(sockets=sockets.listening)
        except SystemExit as stop:
            if app.state.config_error is not None:
                raise app.state.config_error from None
            return stop.code if isinstance(stop.code, int) else 1
        finally:
            uvicorn_log.removeFilter(tells)
            flush_log()
    return 0 if server.started and not server.has_failed else 1


def _stderr_that_never_waits() -> int:
    """A non-blocking descriptor for stderr, so that a full pipe which no program reads cuts the traceback and
    does not keep the process from ending. Returns stderr itself if that is a socket."""
    stderr = (sys.__stderr__ or sys.stderr).fileno()
    try:
        return os.open(f"/dev/fd/{stderr}", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return stderr


def tune_memory() -> None:
    """Sets options of glibc, where that is the C library. One arena for all threads: else each keeps what
    passed through it. Large blocks come from the kernel, go back to it, and grow without being copied; the
    rest is kept."""
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        for option, value in _MALLOC.items():
            libc.mallopt(option, value)


def settle_memory() -> None:
    """Runs once, after the start. Excludes the objects that exist by then from all later garbage collections;
    if the C library is glibc, returns freed memory to the kernel, about 9 MB. Takes 0.05 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
    gc.enable()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _config(app: FastAPI, files: int, refused: OnRefusal) -> uvicorn.Config:
    most = max(16, min(MAX_CONNECTIONS, files - SPARE_FILES))
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], partial(Protocol, refused=refused, max_connections=most)),
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


def raise_open_files() -> int:
    """Raises the soft limit of open files to the hard one; answers what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
