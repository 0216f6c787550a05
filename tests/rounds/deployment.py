"""The replicas of the service behind a balancer, and the faults that are theirs."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from tests.faults.service_process import Service
from tests.keys import key_file
from tests.redis_server import HOST, free_port
from tests.rounds.shapes import PAGED_SECONDS, ROOT, Fault, Shape, Step, in_thread

KEYS = ("team:agent", "operators:scrape:metrics")
POLICY = "[defaults]\nmax_bytes = 12288\n"
DOWN_SECONDS = 165.0
"""SpillgateDown pages after two minutes."""

UNREAD = 1
"""The number of the replica whose stdout and stderr have a reader that can stop."""


class Deployment:
    """Replicas with encryption at rest, behind HAProxy as deploy/proxy has it."""

    def __init__(self, place: Path, shape: Shape) -> None:
        self._place, self._shape = place, shape
        self._ports = [free_port() for _ in range(shape.replicas)]
        self._port = free_port()
        self.url = f"http://{HOST}:{self._port}"
        self._replicas: list[Service] = []
        self._starts = 0
        self._proxy: subprocess.Popen[bytes] | None = None
        self._readers: list[subprocess.Popen[bytes]] = []

    @property
    def targets(self) -> dict[str, str]:
        return {f"replica-{number}": f"http://{HOST}:{port}" for number, port in enumerate(self._ports)}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Deployment"]:
        key_file(self._place / "keys", *KEYS)
        (self._place / "policy.toml").write_text(POLICY)
        for number in range(self._shape.replicas):
            self._write_storage_keys(number, "first")
        self._replicas = [self._spawn(number) for number in range(self._shape.replicas)]
        try:
            for replica in self._replicas:
                await replica.listening()
            self._start_proxy()
            yield self
        finally:
            self._stop_proxy()
            for replica in self._replicas:
                replica.kill()
            for reader in self._readers:
                reader.kill()
                reader.wait()

    def _spawn(self, number: int) -> Service:
        self._starts += 1
        settings = {
            **self._shape.settings,
            "api_keys_file": str(self._place / "keys"),
            "storage_key_file": str(self._storage_keys(number)),
            "policy_file": str(self._place / "policy.toml"),
            "audit": str(self._place / f"audit-{number}"),
            "trusted_proxies": HOST,
        }
        command = ("-m", "beside.main", "serve", "--port", str(self._ports[number]))
        log = self._place / f"replica-{number}-{self._starts}.log"
        if number != UNREAD:
            return Service(self._place / "state", log, command, settings)
        pipe = self._place / f"pipe-{self._starts}"
        os.mkfifo(pipe)
        with log.open("wb") as file:
            self._readers.append(subprocess.Popen(["cat", str(pipe)], stdout=file))
        found = Service(self._place / "state", pipe, command, {**settings, "accounting_export": "-"})
        found.log = log
        return found

    def _storage_keys(self, number: int) -> Path:
        return self._place / f"storage-{number}.keys"

    def _write_storage_keys(self, number: int, *names: str) -> None:
        """The key of a name is the same for every replica of this deployment."""
        lines = [f"{name}:{(name.encode().hex() * 32)[:64]}\n" for name in names]
        file = self._storage_keys(number)
        file.write_text("".join(lines))
        file.chmod(0o600)

    def _start_proxy(self) -> None:
        example = (ROOT / "deploy" / "proxy" / "haproxy.cfg").read_text()
        servers = "".join(f"  server s{port} {HOST}:{port}\n" for port in self._ports)
        text = re.sub(r"(  server \S+ \S+\n)+", servers, example.replace(":8080", f":{self._port}"))
        config = self._place / "haproxy.cfg"
        config.write_text(text)
        found = shutil.which("haproxy") or "/usr/sbin/haproxy"
        with (self._place / "haproxy.log").open("wb") as log:
            self._proxy = subprocess.Popen([found, "-db", "-f", str(config)], stdout=log, stderr=log)

    def _stop_proxy(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()

    def faults(self) -> list[Fault]:
        """Those of any deployment."""
        return [
            Fault(
                "a replica: kill -9, started again",
                in_thread(lambda: self._replicas[0].kill()),
                self._start_again,
            ),
            Fault("a replica: SIGTERM, started again", self._stop, self._start_again),
        ]

    def shared_faults(self) -> list[Fault]:
        """Those of which one kind of store tells enough."""
        return [
            Fault(
                "a replica: killed, away for minutes",
                in_thread(lambda: self._replicas[0].kill()),
                self._start_again,
                seconds=DOWN_SECONDS,
            ),
            Fault("a replica: silent (SIGSTOP)", self._signal(signal.SIGSTOP), self._signal(signal.SIGCONT)),
            Fault(
                "the balancer: kill -9, started again",
                in_thread(self._stop_proxy),
                in_thread(self._start_proxy),
            ),
            Fault(
                "a replica: its stdout (accounting) and stderr are not read",
                in_thread(lambda: self._readers[-1].send_signal(signal.SIGSTOP)),
                in_thread(lambda: self._readers[-1].send_signal(signal.SIGCONT)),
            ),
            Fault(
                "a replica: it lacks the key that the others encrypt with",
                self._rotate_without_first,
                in_thread(lambda: self._write_storage_keys(0, "second", "first")),
            ),
            Fault(
                "the API key of the agents is taken out",
                in_thread(lambda: key_file(self._place / "keys", *KEYS[1:])),
                in_thread(lambda: key_file(self._place / "keys", *KEYS)),
                frozenset({401}),
            ),
            Fault(
                "the policy file is broken",
                in_thread(lambda: (self._place / "policy.toml").write_text("[defaults\n")),
                in_thread(lambda: (self._place / "policy.toml").write_text(POLICY)),
                seconds=PAGED_SECONDS,
            ),
        ]

    async def _start_again(self) -> None:
        self._replicas[0] = await self._spawn(0).listening()

    async def _stop(self) -> None:
        await self._replicas[0].stop()

    def _signal(self, number: int) -> Step:
        return in_thread(lambda: os.kill(self._replicas[0].pid, number))

    async def _rotate_without_first(self) -> None:
        for number in range(1, self._shape.replicas):
            self._write_storage_keys(number, "second", "first")
