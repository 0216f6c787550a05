"""Classifies errors of OpenAI-compatible backends. Their texts are read, but never passed on."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from domain.errors import (
    ContextExceeded,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PromptDeclined,
    PromptRefused,
)
from extraction.models.openai_wire import Dialect

_READ_CHARS = 1000

_RETRYABLE = frozenset((408, 409, 425, 429))
_ABOUT_THE_REQUEST = frozenset((400, 413, 422, 500))
_ABOUT_A_FIELD = frozenset((400, 422))

# Patterns of error codes and of messages, in lower case.
_QUOTA_CODES = re.compile("insufficient_quota|billing")
_MODEL_CODES = re.compile("model_not_found|unknown_model")
_MODEL_WORDS = re.compile("invalid model name")
# LiteLLM's proxy answers 400 with the last one to a key that it does not know.
_KEY_CODES = re.compile("invalid_api_key|authentication_error|auth_error|no_db_connection")
_FILTER_CODES = re.compile("content_filter|content_policy")
_CONTEXT_CODES = re.compile("context_length|exceed_context_size")
_CONTEXT_WORDS = re.compile(
    "context (?:length|size|window)|maximum (?:model|prompt) length|too many tokens|reduce the length"
    "|(?:prompt|input) is too long|input token count"
)
_OUTPUT_WORDS = re.compile("max_(?:completion_|output_)?tokens|maxoutputtokens|output tokens")
_TOO_LARGE_WORDS = re.compile("too (?:large|high)|at most|less than|<=| > |maximum|range|exceed")
# Not part of a name, as in "model-2024-05-13".
_NUMBER = re.compile(r"(?<![\w.-])(\d{1,3}(?:,\d{3})+|\d{1,9})(?!\w|[.,-]\w)", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
# No model has a smaller cap: a smaller number in a complaint means something else.
_LEAST_OUTPUT_TOKENS = 256
# The request exceeds what the backend accepts in a minute: a later try would fail as well.
_TOO_MUCH = "request too large"


class _ErrorJson(msgspec.Struct):
    error: object = None
    message: object = None
    detail: object = None
    code: object = None
    type: object = None
    param: object = None


_ERROR = msgspec.json.Decoder(_ErrorJson | list[_ErrorJson])


@dataclass(frozen=True, slots=True)
class Complaint:
    """The contents of an error's body, in lower case."""

    codes: str = ""
    message: str = ""
    parameter: str = ""

    @property
    def about_length(self) -> bool:
        return bool(_CONTEXT_CODES.search(self.codes) or _CONTEXT_WORDS.search(self.message))

    @property
    def about_model(self) -> bool:
        return bool(_MODEL_CODES.search(self.codes) or _MODEL_WORDS.search(self.message))

    @property
    def about_key(self) -> bool:
        return bool(_KEY_CODES.search(self.codes))

    @property
    def about_output(self) -> bool:
        """True if the requested output tokens exceed what the model can give."""
        if self.about_length or not _TOO_LARGE_WORDS.search(self.message):
            return False
        return bool(_OUTPUT_WORDS.fullmatch(self.parameter) or _OUTPUT_WORDS.search(self.message))

    def taught(self, status: int, used: Dialect, known: Dialect, allowed: int) -> Dialect | None:
        """Returns `known` adapted to this complaint, about a request in `used` that allowed `allowed` output
        tokens; None if the complaint teaches nothing."""
        if status not in _ABOUT_A_FIELD:
            return None
        if allowed > _LEAST_OUTPUT_TOKENS and self.about_output:
            most = min(self._most_output_tokens(allowed), known.most_output_tokens or allowed)
            return replace(known, most_output_tokens=most)
        if used.tokens_field == "max_tokens" and "max_completion_tokens" in self.message:
            return replace(known, tokens_field="max_completion_tokens")
        if used.has_temperature and ("temperature" in self.message or self.parameter == "temperature"):
            return replace(known, has_temperature=False)
        return None

    def _most_output_tokens(self, allowed: int) -> int:
        """The number in the message, else half of `allowed`."""
        named = (int(number.replace(",", "")) for number in _NUMBER.findall(self.message))
        halved = max(_LEAST_OUTPUT_TOKENS, allowed // 2)
        return max((one for one in named if _LEAST_OUTPUT_TOKENS <= one < allowed), default=halved)


def parse_complaint(body: bytes | bytearray) -> Complaint:
    try:
        decoded = _ERROR.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Complaint(message=body[:_READ_CHARS].decode(errors="replace").lower())
    one = decoded if isinstance(decoded, _ErrorJson) else next(iter(decoded), _ErrorJson())
    if isinstance(one.error, dict):
        inner = msgspec.convert(one.error, _ErrorJson)
    else:
        inner = one if one.error is None else _ErrorJson(message=one.error)
    message = inner.message or inner.detail
    return Complaint(f"{_word(inner.code)} {_word(inner.type)}", _word(message), _word(inner.param))


def _word(value: object) -> str:
    return value[:_READ_CHARS].lower() if isinstance(value, str) else ""


def failure(status: int, headers: Mapping[str, str], complaint: Complaint) -> ModelError:
    """`headers` by names in lower case."""
    if status == 402 or (status == 429 and _QUOTA_CODES.search(complaint.codes)):
        return ModelRefused("quota exhausted")
    if _is_too_long(status, complaint):
        return ContextExceeded("the prompt is longer than the model's window")
    if _FILTER_CODES.search(complaint.codes):
        # Of this prompt: another one may be answered.
        return PromptDeclined("the backend's content filter refused the prompt")
    advice = headers.get("x-should-retry", "").strip().lower()
    if advice == "true" or (advice != "false" and (status in _RETRYABLE or status >= 500)):
        return ModelUnavailable(f"the backend failed ({status})", retry_after(headers))
    if status in _ABOUT_A_FIELD and not (complaint.about_model or complaint.about_key):
        return PromptRefused(f"the backend refused the request ({status})")
    return ModelRefused(_refusal(status, complaint))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that a backend asks for, not bounded; None if it sends none that is valid."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    named = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(named):
        return float(named)
    try:
        date = parsedate_to_datetime(named)
        # A date without a zone is UTC too.
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _is_too_long(status: int, complaint: Complaint) -> bool:
    if status == 429:
        return _TOO_MUCH in complaint.message
    return status == 413 or (status in _ABOUT_THE_REQUEST and complaint.about_length)


def _refusal(status: int, complaint: Complaint) -> str:
    if status < 400:
        return "the backend answered with a redirect"
    if status in (401, 403) or complaint.about_key:
        return "the backend refused the key"
    if status == 404 or complaint.about_model:
        return "unknown model"
    return f"the backend refused the request ({status})"
