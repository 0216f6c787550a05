"""Sends one conversation with each provider's own SDK to a server on loopback; prints the bodies as JSON.

Each text that begins with RESULT is the result of a tool. Runs with the packages of requirements.lock.
"""

import base64
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import anthropic
import boto3
import botocore.exceptions
import openai
from botocore.config import Config
from google import genai
from google.genai import types

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}}
ARGUMENTS = {"command": "ls -l"}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Recorder(BaseHTTPRequestHandler):
    """Refuses each request, and keeps its body."""

    bodies: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def by_chat(url: str) -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "bash", "arguments": json.dumps(ARGUMENTS)}}
        for n in range(2)
    ]
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c0", "content": "RESULT 0"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "RESULT 1"}]},
        {"role": "user", "content": "Go on."},
    ]
    tool: Any = {"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    with suppress(openai.APIError):
        client.chat.completions.create(model="m", messages=messages, tools=[tool])


def by_responses(url: str) -> None:
    items: list[Any] = [
        {"role": "user", "content": "What is there?"},
        {"type": "function_call", "call_id": "c0", "name": "bash", "arguments": json.dumps(ARGUMENTS)},
        {"type": "function_call_output", "call_id": "c0", "output": "RESULT 0"},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": json.dumps(ARGUMENTS)},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "RESULT 1"},
                {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,AAAA"},
            ],
        },
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "RESULT 2"},
    ]
    tool: Any = {"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    with suppress(openai.APIError):
        client.responses.create(model="m", instructions="Be brief.", input=items, tools=[tool])


def by_anthropic(url: str) -> None:
    cached = {"type": "ephemeral"}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    messages: list[Any] = [
        {"role": "user", "content": "What is there?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                *({"type": "tool_use", "id": f"t{n}", "name": "bash", "input": ARGUMENTS} for n in range(3)),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t0", "content": "RESULT 0", "cache_control": cached},
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [
                        {"type": "text", "text": "RESULT 1", "cache_control": cached},
                        picture,
                    ],
                },
                {"type": "tool_result", "tool_use_id": "t2", "content": "RESULT 2", "is_error": True},
                {"type": "text", "text": "Go on.", "cache_control": cached},
            ],
        },
    ]
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    tool: Any = {"name": "bash", "input_schema": SCHEMA}
    with suppress(anthropic.APIError):
        client.messages.create(model="m", max_tokens=9, system="Be brief.", messages=messages, tools=[tool])


def by_gemini(url: str) -> None:
    calls = [types.Part.from_function_call(name="bash", args=ARGUMENTS) for _ in range(2)]
    named = types.FunctionCall(id="g2", name="fetch", args={"url": "https://example.com/"})
    table = {"rows": [{"n": 1.5, "text": "RESULT 2"}], "next": None}
    answer = types.FunctionResponse(id="g2", name="fetch", response=table)
    contents: list[Any] = [
        types.Content(role="user", parts=[types.Part.from_text(text="What is there?")]),
        types.Content(role="model", parts=[*calls, types.Part(function_call=named)]),
        types.Content(
            role="user",
            parts=[
                types.Part.from_function_response(name="bash", response={"result": "RESULT 0"}),
                types.Part.from_function_response(name="bash", response={"output": "RESULT 1"}),
                types.Part(function_response=answer),
            ],
        ),
    ]
    declared = types.FunctionDeclaration(name="bash", parameters_json_schema=SCHEMA)
    options = types.GenerateContentConfig(
        system_instruction="Be brief.", tools=[types.Tool(function_declarations=[declared])]
    )
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
    with suppress(genai.errors.APIError):
        client.models.generate_content(model="m", contents=contents, config=options)


def by_bedrock(url: str) -> None:
    results = [
        {"toolUseId": "b0", "content": [{"text": "RESULT 0"}]},
        {"toolUseId": "b1", "content": [{"json": {"rows": [{"text": "RESULT 1"}]}}], "status": "success"},
        {
            "toolUseId": "b2",
            "content": [{"text": "RESULT 2"}, {"image": {"format": "png", "source": {"bytes": PIXEL}}}],
            "status": "error",
        },
    ]
    messages = [
        {"role": "user", "content": [{"text": "What is there?"}]},
        {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": f"b{n}", "name": "bash", "input": ARGUMENTS}} for n in range(3)
            ],
        },
        {
            "role": "user",
            "content": [*({"toolResult": one} for one in results), {"cachePoint": {"type": "default"}}],
        },
    ]
    client = boto3.client(
        "bedrock-runtime",
        region_name="eu-west-1",
        endpoint_url=url,
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=Config(retries={"total_max_attempts": 1}),
    )
    tool = {"toolSpec": {"name": "bash", "inputSchema": {"json": SCHEMA}}}
    with suppress(botocore.exceptions.ClientError):
        client.converse(
            modelId="m", system=[{"text": "Be brief."}], messages=messages, toolConfig={"tools": [tool]}
        )


SDKS = {
    "openai chat": by_chat,
    "openai responses": by_responses,
    "anthropic messages": by_anthropic,
    "gemini contents": by_gemini,
    "bedrock converse": by_bedrock,
}


def main() -> None:
    server = HTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for send in SDKS.values():
        send(f"http://127.0.0.1:{server.server_port}")
    print(json.dumps(dict(zip(SDKS, Recorder.bodies, strict=True)), indent=1))


if __name__ == "__main__":
    main()
