"""What is in force and why: settings, a tool's policy, a model's terms, each with where it was set."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.access import load_keys
from app.known_models import model_terms
from app.policy_files import load_policies
from app.settings import PREFIX, Settings
from content.tokens import encoding_for_model, load_encoding
from policies.book import PolicyBook, Reason

# Up to the last @: a password that is not percent-encoded may hold any of :/?#@.
_PASSWORD = re.compile(r"(://[^@:]*:).*(?=@)|([?&][a-z_]*password=)[^&]+")
_HEADS = ("key", "value", "set by")


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """`tool` is "*" for a tool that no glob names."""

    settings: Sequence[Reason]
    tool: str
    policy: Sequence[Reason]
    model: str | None
    terms: Sequence[Reason]

    def as_json(self) -> str:
        def places(reasons: Sequence[Reason]) -> dict[str, str]:
            return {one.key: one.place for one in reasons}

        told = {
            "settings": _values(self.settings),
            "tool": self.tool,
            "policy": _values(self.policy),
            "model": self.model,
            "terms": _values(self.terms),
            "set_by": {
                "settings": places(self.settings),
                "policy": places(self.policy),
                "terms": places(self.terms),
            },
        }
        return json.dumps(told, indent=2, ensure_ascii=False)

    def as_text(self, with_settings: bool) -> str:
        """A table each; the settings only where they are asked for."""
        named = "any other tool" if self.tool == "*" else self.tool
        parts = [("Settings", self.settings)] if with_settings else []
        parts.append((f"Policy for {named}", self.policy))
        if self.model is not None:
            parts.append((f"Model {self.model}", self.terms))
        return "\n\n".join(f"{title}\n{table(_rows(reasons))}" for title, reasons in parts)


def report(settings: Settings, tool: str = "*", model: str | None = None) -> ConfigReport:
    """Raises ConfigError for what cannot be honoured."""
    load_encoding(settings.encoding)
    if settings.api_keys_file is not None:
        load_keys(settings.api_keys_file)
    policies = load_policies(settings)
    return ConfigReport(
        settings=[
            _setting(name, value, settings) for name, value in settings.model_dump(mode="json").items()
        ],
        tool=tool,
        policy=policies.reasons(tool),
        model=model,
        terms=_terms(model, settings, policies) if model is not None else (),
    )


def table(rows: Iterable[Sequence[str]], heads: Sequence[str] = _HEADS) -> str:
    """Columns as wide as what is in them, indented by two."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(f"  {line}".rstrip() for line in padded)


def mask_url(text: str) -> str:
    """The text with `***` in place of each password of a URL."""
    return _PASSWORD.sub(r"\1\2***", text)


def _setting(name: str, value: object, settings: Settings) -> Reason:
    """URLs without the password that they may carry."""
    shown = {"storage_url": settings.store, "ledger_url": settings.ledger}.get(name, value)
    text = mask_url(shown) if isinstance(shown, str) else shown
    place = "given" if name in settings.model_fields_set else "default"
    return Reason(f"{PREFIX}{name.upper()}", text, place)


def _terms(model: str, settings: Settings, policies: PolicyBook) -> list[Reason]:
    """The budget's window, the encoding, and the prices of extraction; the policy file's word goes first."""
    keys = policies.model_keys(model)
    known = model_terms(model, keys, settings)
    encoding = encoding_for_model(model, "")
    terms = [
        Reason("context_window", settings.context_window, f"{PREFIX}CONTEXT_WINDOW"),
        Reason("max_output_tokens", settings.max_output_tokens, f"{PREFIX}MAX_OUTPUT_TOKENS"),
        Reason("encoding", encoding, "known of the model")
        if encoding
        else Reason("encoding", settings.encoding, f"{PREFIX}ENCODING"),
        Reason("input_price", known.price.input, "known prices; 0 if unknown"),
        Reason("output_price", known.price.output, "known prices; 0 if unknown"),
        Reason("cached_price", known.price.cached, "known prices; 0 if unknown"),
    ]
    told = {one.key: one for one in policies.model_reasons(model)}
    return [told.get(one.key, one) for one in terms]


def _values(reasons: Iterable[Reason]) -> dict[str, object]:
    return {one.key: one.value for one in reasons}


def _rows(reasons: Iterable[Reason]) -> list[tuple[str, str, str]]:
    return [(one.key, json.dumps(one.value, ensure_ascii=False), one.place) for one in reasons]
