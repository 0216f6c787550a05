"""A scripted model on loopback that coding agents ask, in the protocol of each (`wires`).

    with ScriptedModel() as model:
        agent = ClaudeCode(tmp_path, model)         # of tests.interop.agents.programs
        model.script(Call("Bash", {"command": "seq 1 60000"}), "Done.")
        ran = await agent.run("Count.")
        assert model.asked[1].results == ["…what the agent showed the model…"]

A request that offers tools uses up one reply of the script. A reply is a text, a `Call`, a list of calls, or
a function of the request that returns one of these, for a reply that depends on what the model was shown. A
request past the end of the script is answered with "The script has ended.". Agents also ask for titles and
summaries, without tools: such a request gets a short text, uses up no reply, and is in `model.side` only.
"""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.interop.agents import wires
from tests.interop.agents.wires import Call, Wire

__all__ = ["Asked", "Call", "ScriptedModel"]

ENDED = "The script has ended."


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of an agent. `wire` is the protocol that it speaks."""

    wire: Wire = field(repr=False)
    body: dict[str, Any] = field(repr=False)

    @property
    def tools(self) -> list[str]:
        """Names of the tools that the agent offers, as the model has to call them."""
        return [tool.name for tool in self.wire.tools(self.body)]

    @property
    def results(self) -> list[str]:
        """The text of each tool result in the conversation, oldest first."""
        return self.wire.results(self.body)

    @property
    def text(self) -> str:
        """The whole request, for a search in it."""
        return json.dumps(self.body, ensure_ascii=False)


Reply = str | Call | Sequence[Call]
Step = Reply | Callable[[Asked], Reply]


class ScriptedModel:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        """Requests of the agent's loop, oldest first."""
        self.side: list[Asked] = []
        """Requests without tools."""
        self.paths: list[str] = []
        """The method and path of every request."""
        self._steps: list[Step] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Without `/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *steps: Step) -> None:
        """Forgets what was asked, and answers the next requests with these replies."""
        with self._lock:
            self.asked, self.side, self._steps = [], [], list(steps)

    def reply(self, asked: Asked) -> str | list[Call]:
        with self._lock:
            if not asked.tools:
                self.side.append(asked)
                return "A title"
            self.asked.append(asked)
            step = self._steps.pop(0) if self._steps else ENDED
        reply = step(asked) if callable(step) else step
        if isinstance(reply, str):
            return reply
        return [reply] if isinstance(reply, Call) else list(reply)


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Writes nothing: a test reads `model.paths`."""

        def do_HEAD(self) -> None:
            self._note()
            self._send(200, "text/plain", [])

        def do_GET(self) -> None:
            self._note()
            found = self.path.partition("?")[0] == "/v1/models"
            self._send(200 if found else 404, "application/json", [wires.MODELS if found else "{}"])

        def do_POST(self) -> None:
            self._note()
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = self.path.partition("?")[0]
            if path == "/v1/messages/count_tokens":
                tokens = {"input_tokens": len(body) // 4}
                self._send(200, "application/json", [json.dumps(tokens)])
                return
            method = path.replace(":", "/").rpartition("/")[2]
            wire = wires.WIRES.get(method)
            if wire is None:
                self._send(404, "application/json", ["{}"])
                return
            asked = Asked(wire, json.loads(body))
            reply = model.reply(asked)
            if asked.body.get("stream") or method.startswith("stream"):
                self._send(200, "text/event-stream", wire.events(reply, asked.body))
            else:
                self._send(200, "application/json", [json.dumps(wire.whole(reply, asked.body))])

        def _note(self) -> None:
            model.paths.append(f"{self.command} {self.path}")

        def _send(self, status: int, media: str, parts: Iterable[str]) -> None:
            data = "".join(parts).encode()
            self.send_response(status)
            self.send_header("content-type", media)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
