"""An issuer of OpenID Connect on this machine: a real HTTP server, keys that rotate, tokens, and faults."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "spillgate"


@cache
def _generated(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


_NUMBERS = cycle(range(8))
"""Of keys: to generate one takes a tenth of a second. No test has eight at a time."""


class LoopbackIssuer:
    """`answers` replaces what a path answers: a status and a body. `asked` has the paths, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.keys: dict[str, tuple[PrivateKeyTypes, str, str]] = {}
        self.silent = threading.Event()
        self.rotate("first")

    def rotate(self, kid: str, algorithm: str = "RS256", also: str | None = None) -> None:
        """One key, `kid`, and the key `also` of before."""
        key: PrivateKeyTypes
        if algorithm.startswith("ES"):
            key = ec.generate_private_key(ec.SECP256R1())
            public = ECAlgorithm.to_jwk(key.public_key())
        else:
            key = _generated(next(_NUMBERS))
            public = RSAAlgorithm.to_jwk(key.public_key())
        kept = {also: self.keys[also]} if also else {}
        self.keys = {kid: (key, algorithm, public), **kept}

    @property
    def jwks(self) -> bytes:
        keys = [
            json.loads(public) | {"kid": kid, "use": "sig", "alg": algorithm}
            for kid, (_, algorithm, public) in self.keys.items()
        ]
        return json.dumps({"keys": keys}).encode()

    def token(self, kid: str = "first", *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """None takes a claim away."""
        key, algorithm, _ = self.keys[kid]
        now = int(time.time())
        said = {"iss": self.url, "aud": AUDIENCE, "exp": now + 600, "iat": now, "sub": "ada", "tenant": "red"}
        said = {name: value for name, value in (said | claims).items() if value is not None}
        return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid} | (header or {}))  # type: ignore[arg-type]

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/keys":
            return 200, self.jwks
        return 200, json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()

    @contextmanager
    def listening(self, port: int = 0) -> Iterator["LoopbackIssuer"]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if issuer.silent.is_set():
                    time.sleep(120)
                status, body = issuer.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
