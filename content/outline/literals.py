"""Patterns of strings and comments, by language.

Every repetition is possessive or bounded. An unclosed string ends with its line or with the text. A pattern
begins with a literal byte, so that the regular expression engine skips to it fast.
"""

import re
from collections.abc import Mapping

from content.outline.languages import Language

_SLASHES = r"//[^\n]*+"
_BLOCK = r"/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+"
_HASH = r"#[^\n]*+"
_HASH_WORD = r"#(?<![^\s;(){}\[\],]#)[^\n]*+"
_DASHES = r"--[^\n]*+"
_DOUBLE = r'"(?:[^"\\\n]++|\\.)*+"?+'
_SINGLE = r"'(?:[^'\\\n]++|\\.)*+'?+"
_DOUBLE_LINES = r'"(?:[^"\\]++|\\.)*+"?+'
_SINGLE_LINES = r"'(?:[^'\\]++|\\.)*+'?+"
_CHARACTER = r"'(?:[^'\\\n]|\\[^\n][^'\n]{0,8})'"
_TEMPLATE_TEXT = r"`(?:[^`\\]++|\\.)*+`?+"
_RAW_TICKS = r"`[^`]*+`?+"
_TRIPLE_DOUBLE = r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?+'
_TRIPLE_SINGLE = r"'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+"
_TRIPLE_RAW = r'"""(?:[^"]++|"(?!""))*+(?:""")?+'
_REGEX = (
    r"/(?:(?<=[=(,:\[!&|?{};+]/)|(?<=[=(,:\[!&|?{};+] /)|(?<=return /))(?![/*])"
    r"(?:[^/\\\[\n]++|\\[^\n]|\[(?:[^\]\\\n]++|\\[^\n])*+\]?+)++/?+"
)


def _here_document(opening: str, tag: str, closing: str) -> str:
    """A here-document of at most 300 lines, even if unclosed: looking for each end again would be slow."""
    return (
        rf"{opening}[-~]?+['\"]?(?P<tag>{tag})['\"]?[^\n]{{0,300}}\n"
        rf"(?:(?![ \t]*(?P=tag){closing})[^\n]*+\n){{0,300}}+(?:[ \t]*(?P=tag){closing})?"
    )


_SHELL_HERE = _here_document(r"<<(?<!<<<)(?!<)", r"[A-Za-z_]\w{0,40}", r"$")
_UPPER_HERE = _here_document(r"<<(?<!<<<)(?!<)", r"[A-Z_]\w{0,40}", r"$")
_PHP_HERE = _here_document(r"<<<[ \t]*+", r"[A-Za-z_]\w{0,40}", r"\b")

_SCRIPT_TOKENS = (_SLASHES, _BLOCK, _REGEX, _DOUBLE, _SINGLE, _TEMPLATE_TEXT)
_C_TOKENS = (_SLASHES, _BLOCK, _DOUBLE, _CHARACTER)
_RUBY_TOKENS = (
    r"\n=begin\b(?:[^\n]*+\n(?!=end))*+",
    r"\n__END__\b[\s\S]*+",
    _HASH_WORD,
    _UPPER_HERE,
    r"%[wWiIqQr]?(?:\([^()]*+\)|\[[^\[\]]*+\]|\{[^{}]*+\}|\|[^|\n]*+\||![^!\n]*+!)",
    r"/(?<=[(,=~|&! ]/)(?![\s/=])(?:[^/\\\n]++|\\.)++/?+",
    r"\?(?<=\W\?)[\"'#](?!\w)",
    _DOUBLE,
    _SINGLE,
)

_PATTERNS: Mapping[Language, tuple[str, ...]] = {
    Language.PYTHON: (_HASH, _TRIPLE_DOUBLE, _TRIPLE_SINGLE, _DOUBLE, _SINGLE),
    Language.JAVASCRIPT: _SCRIPT_TOKENS,
    Language.TYPESCRIPT: _SCRIPT_TOKENS,
    Language.TSX: _SCRIPT_TOKENS,
    Language.GO: (_SLASHES, _BLOCK, _RAW_TICKS, _DOUBLE, _CHARACTER),
    Language.RUST: (
        _SLASHES,
        _BLOCK,
        r'r(?P<m>#{0,8})"(?:[^"]++|"(?!(?P=m)))*+(?:"(?P=m))?',
        _DOUBLE_LINES,
        _CHARACTER,
    ),
    Language.JAVA: (_SLASHES, _BLOCK, _TRIPLE_DOUBLE, _DOUBLE, _CHARACTER),
    Language.C: _C_TOKENS,
    Language.CPP: (r'R"(?P<m>[^()\s\\"]{0,16})\((?:[^)]++|\)(?!(?P=m)"))*+(?:\)(?P=m)")?', *_C_TOKENS),
    Language.RUBY: _RUBY_TOKENS,
    Language.CSHARP: (_SLASHES, _BLOCK, r'@\$?"(?:[^"]++|"")*+"?+', _TRIPLE_RAW, _DOUBLE, _CHARACTER),
    Language.SHELL: (r"\\.", _HASH_WORD, _SHELL_HERE, _DOUBLE_LINES, r"'[^']*+'?+"),
    Language.PHP: (
        r"\?>(?:[^<]++|<(?!\?))*+",
        _SLASHES,
        r"#(?!\[)[^\n]*+",
        _BLOCK,
        _PHP_HERE,
        _DOUBLE_LINES,
        _SINGLE_LINES,
    ),
    Language.KOTLIN: (_SLASHES, _BLOCK, _TRIPLE_RAW, _DOUBLE, _CHARACTER),
    Language.SWIFT: (_SLASHES, _BLOCK, _TRIPLE_DOUBLE, _DOUBLE),
    Language.SCALA: (_SLASHES, _BLOCK, _TRIPLE_RAW, _DOUBLE, _CHARACTER),
    Language.ELIXIR: (
        r'~[a-zA-Z]"""(?:[^"]++|"(?!""))*+"*+',
        r"\?[\"']",
        _HASH,
        _TRIPLE_DOUBLE,
        _TRIPLE_SINGLE,
        _DOUBLE_LINES,
        _SINGLE,
    ),
    Language.LUA: (
        r"--\[(?P<a>=*)\[(?:[^\]]++|\](?!(?P=a)\]))*+",
        _DASHES,
        r"\[(?P<b>=*)\[(?:[^\]]++|\](?!(?P=b)\]))*+",
        _DOUBLE,
        _SINGLE,
    ),
    Language.R: (_HASH, _DOUBLE_LINES, _SINGLE_LINES),
    Language.PERL: (
        r"\n=(?=[a-z])(?!cut)[^\n]*+(?:\n(?!=cut)[^\n]*+)*+",
        r"\n__(?:END|DATA)__[\s\S]*+",
        _HASH_WORD,
        _UPPER_HERE,
        _DOUBLE,
        _SINGLE,
    ),
    Language.SQL: (_DASHES, _BLOCK, r"'(?:[^']++|'')*+'?+"),
}

TOKENS = {
    language: re.compile("|".join(patterns).encode(), re.DOTALL | re.MULTILINE)
    for language, patterns in _PATTERNS.items()
}
"""Each matches one string or comment."""
