"""Prompts to a model, its replies, and their price."""

from array import array
from dataclasses import dataclass
from enum import StrEnum

MODEL_SCHEMES = ("http", "https")
"""The schemes of the URL of a model's backend."""


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that the model may call. `parameters` is a JSON schema, as JSON text."""

    name: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for. `arguments` is the model's text: usually JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """Only an assistant message has `tool_calls`; only a tool message has `tool_call_id`."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of one model call."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class LlmTokens:
    """Token counts of one call. `cached` is the part of `input` that the backend had in its cache."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply. `tokens` is None if the backend sent no usage, or zeros. `model` is the name of the
    model that answered; the Asker sets it. `vectors` are those of an embedding model, one for each message of
    the prompt, each of length 1. `received_bytes` is the size of the body that held the text."""

    text: str
    stop_reason: str
    tool_calls: tuple[ToolCall, ...] = ()
    tokens: LlmTokens | None = None
    model: str = ""
    vectors: "tuple[array[float], ...]" = ()
    received_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None

    def cost(self, tokens: LlmTokens) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, tokens.input - tokens.cached)
        return (fresh * self.input + tokens.cached * cached + tokens.output * self.output) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """Window and price of a model. `context_window` holds input and output together, in tokens."""

    name: str
    context_window: int
    max_output_tokens: int
    price: Price = Price()
    provider: str = ""


@dataclass(frozen=True, slots=True)
class LlmCall:
    """One model call, for the accounting. `latency` is in ms, `timestamp` Unix ms."""

    provider: str
    model: str
    timestamp: int
    latency: float
    stop_reason: str | None = None
    tokens: LlmTokens = LlmTokens()
    cost_usd: float = 0.0
    error: str | None = None
