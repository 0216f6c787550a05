"""A server on the official Python SDK with a bit of everything, on stdio, or over HTTP on a given port."""

import sys
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import Completion
from pydantic import BaseModel, Field

server = MCPServer("everything", instructions="Use it.")


class Row(BaseModel):
    id: int
    name: str


class Answer(BaseModel):
    yes: bool


@server.tool()
def log(lines: int) -> str:
    """A log."""
    return "".join(f"{n} INFO request {n} was served\n" for n in range(lines))


@server.tool()
def rows(count: int) -> list[Row]:
    """Structured rows."""
    return [Row(id=n, name=f"name {n}") for n in range(count)]


@server.tool()
def region(name: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Has an argument that clients repeat in an HTTP header."""
    return f"region {name}"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("It failed. " * 3000)


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG" + bytes(range(256)) * 100, format="png")


@server.tool()
async def work(context: Context, steps: int) -> str:
    """Reports progress and logs."""
    for step in range(steps):
        await context.report_progress(step + 1, steps, f"step {step}")
    return "done"


@server.tool()
async def confirm(context: Context) -> str:
    """Asks the user."""
    answer = await context.elicit("Sure?", Answer)
    return str(answer)


@server.tool()
async def wait() -> str:
    """Waits until it is cancelled."""
    await anyio.sleep_forever()
    return "never"


@server.resource("notes://all")
def notes() -> str:
    return "note\n" * 20_000


@server.resource("notes://{name}")
def note(name: str) -> str:
    return f"note {name}"


@server.prompt()
def greet(name: str) -> str:
    """Greets."""
    return f"Say hello to {name}."


@server.completion()
async def complete(reference, argument, context):
    return Completion(values=[f"{argument.value}{n}" for n in range(3)])


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
