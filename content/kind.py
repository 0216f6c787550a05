"""The kinds of text, by their names in answers and prompts; `content.formats.identify` tells which it is."""

from enum import StrEnum


class Kind(StrEnum):
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    LOG = "log"
    MARKDOWN = "markdown"
    HTML = "html"
    XML = "xml"
    CODE = "code"
    GREP = "grep"
    DIFF = "diff"
    LISTING = "listing"
    BINARY = "binary"
    TEXT = "text"
