"""What is said to a model, and what comes back."""

from dataclasses import dataclass
from enum import StrEnum


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
    """The model's wish. `arguments` is what it wrote: JSON text, if all went well."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """`tool_calls` only from the assistant; `tool_call_id` only where `role` is tool."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One call: what the model is to read, what it may answer in tokens, what it may call."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class LlmTokens:
    """As the backend reported them; `cached` is the part of `input` that it had read before."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said. `tokens` is None where the backend did not report it in earnest; `model` is the
    name of the one that answered, "" until the asker of several has filled it in."""

    text: str
    stop_reason: str
    tool_calls: tuple[ToolCall, ...] = ()
    tokens: LlmTokens | None = None
    model: str = ""


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
    """What is known of a model. `window` holds input and output together, in tokens."""

    name: str
    context_window: int
    max_output_tokens: int
    price: Price = Price()
    provider: str = ""


@dataclass(frozen=True, slots=True)
class LlmCall:
    """One call to a model as the accounting knows it. `latency` in ms, `timestamp` Unix ms."""

    provider: str
    model: str
    timestamp: int
    latency: float
    stop_reason: str | None = None
    tokens: LlmTokens = LlmTokens()
    cost_usd: float = 0.0
    error: str | None = None
