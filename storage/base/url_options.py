"""The options of a URL. Their errors repeat nothing of the URL, which may hold a password."""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl

from domain.errors import ConfigError, unknown_key

_SHORTEST, _LONGEST = 0.1, 60
"""Seconds of an operation."""


@dataclass(frozen=True, slots=True)
class UrlOptions:
    """`noun` names the URL in errors: "a Redis URL". Each method raises ConfigError for another value."""

    given: dict[str, str]
    noun: str

    def is_true(self, name: str, default: str) -> bool:
        text = self.given.get(name, default).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise ConfigError(f"{name} of {self.noun} is true or false.")
        return text in ("true", "1", "yes")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.given.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 6 and least <= int(text) <= most):
            raise ConfigError(f"{name} of {self.noun} is a number from {least} to {most}.")
        return int(text)

    def timeout(self) -> float | None:
        """The seconds of an operation; None if the URL does not say."""
        if "timeout" not in self.given:
            return None
        try:
            seconds = float(self.given["timeout"])
        except ValueError:
            seconds = 0.0
        if not _SHORTEST <= seconds <= _LONGEST:
            raise ConfigError(
                f"timeout of {self.noun} is a number of seconds from {_SHORTEST} to {_LONGEST}."
            )
        return seconds


def options_of(url: SplitResult, noun: str) -> UrlOptions:
    return UrlOptions(dict(parse_qsl(url.query, keep_blank_values=True)), noun)


def known_options_of(url: SplitResult, noun: str, known: Collection[str]) -> UrlOptions:
    """Raises ConfigError for an option that is not known, and for a fragment."""
    options = options_of(url, noun)
    for name in sorted({*options.given, *filter(None, [url.fragment])} - {*known}):
        # The name may be a part of the password: it is not repeated.
        rule = unknown_key(name, sorted(known))
        raise ConfigError(f"Options of {url.scheme}://: {rule}. In a password, ? is %3F and # is %23.")
    return options
