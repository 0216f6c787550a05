"""Programming languages: how to recognise a file's language, and its strings and comments."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from itertools import chain, filterfalse

from content.patterns import starts


class Language(StrEnum):
    PYTHON = "python"
    JAVASCRIPT = "javascript"
    TYPESCRIPT = "typescript"
    TSX = "tsx"
    GO = "go"
    RUST = "rust"
    JAVA = "java"
    C = "c"
    CPP = "c++"
    RUBY = "ruby"
    CSHARP = "c#"
    SHELL = "shell"
    PHP = "php"
    KOTLIN = "kotlin"
    SWIFT = "swift"


CODE_LINE = (
    rb"#!/|#include\b|import (?!\w+: )[\w.{*\"']|from [\w.]+ import |def \w+\(|class \w+[(:{ ]|async def "
    rb"|(?:const|let|var) \w+ ?=|package [\w.]+;?|using [\w.]+;|\}|@\w+|/[/*]"
)
"""The beginning of a line that is source code in any language."""

_EXTENSIONS = {
    Language.PYTHON: "py pyi pyw",
    Language.JAVASCRIPT: "js jsx mjs cjs",
    Language.TYPESCRIPT: "ts mts cts",
    Language.TSX: "tsx",
    Language.GO: "go",
    Language.RUST: "rs",
    Language.JAVA: "java",
    Language.C: "c",
    Language.CPP: "cc cpp cxx c++ h hh hpp hxx h++ ipp inl tpp cu cuh",
    Language.RUBY: "rb rake gemspec ru",
    Language.CSHARP: "cs csx",
    Language.SHELL: "sh bash zsh ksh bats",
    Language.PHP: "php phtml php5 php7",
    Language.KOTLIN: "kt kts",
    Language.SWIFT: "swift",
}
_BY_EXTENSION = {ending: language for language, endings in _EXTENSIONS.items() for ending in endings.split()}
_BY_NAME = {"rakefile": Language.RUBY, "gemfile": Language.RUBY, ".bashrc": Language.SHELL}

_SHEBANG = re.compile(rb"#![^\n]{0,80}?\b(python|node|deno|bun|ruby|php|(?:ba|z|k|da)?sh)[\d.]*\b")
_INTERPRETERS = {
    "node": Language.JAVASCRIPT,
    "deno": Language.TYPESCRIPT,
    "bun": Language.TYPESCRIPT,
}
_LOOKED_AT, _MOST_LINES = 8 * 1024, 250
_LINE = 400
_ENOUGH = 2
_LEAST_SHARE = 0.1
# Blank lines, closing brackets and members of JSON, which are most lines of many texts.
_NO_SIGN = re.compile(rb'\s*+(?:"[^"]*+"(?:: ?+["\d{\[-]|,?\s*\Z)|[\]}]*+,?\s*\Z)')
_COMMENT = re.compile(rb"\s*(?:#|//|/?\*|--|;|\"\"\")")

# Beginnings of lines that occur in one language only. A language is recognised by at least `_ENOUGH` such
# lines, and twice as many as any other language has.
_SIGNS = {
    Language.PYTHON: (
        r"from [\w.]+ import [\w(*]",
        r"import [\w.]+(?: as \w+)?\s*$",
        r"\s*(?:async )?def \w+\(.*\).*:\s*$",
        r"class \w+(?:\(.*\))?:\s*$",
        r"\s*(?:elif .*|except\b.*|else|try):\s*$",
        r"if __name__ ==",
    ),
    Language.JAVASCRIPT: (
        r"(?:const|let|var) .*= ?require\(",
        r"import .* from ['\"]",
        r"module\.exports\b",
        r"export (?:default|const|async|function|class|\{)",
        r"\s*(?:async )?function\*? ?\w*\(.*\) ?\{\s*$",
        r".*\) ?=> ?\{\s*$",
        r"['\"]use strict['\"]",
        r"\s*(?:const|let) \w+ = ",
    ),
    Language.TYPESCRIPT: (
        r"import type |declare ",
        r"export (?:interface|type|enum|abstract|declare) ",
        r"interface \w+.*\{\s*$|type \w+ =",
        r"\s*(?:private|public|protected|readonly) \w+[?]?[:(]",
        r".*[\w)\]]\??: (?:string|number|boolean|void|unknown|Promise<|Record<)",
    ),
    Language.GO: (
        r"package \w+\s*$",
        r"import \(\s*$",
        r"func (?:\(\w+ [*\w.\[\]]+\) )?\w+\(.*\{\s*$",
        r"type \w+ (?:struct|interface) ?\{",
        r"\s+\w+(?:, \w+)* := ",
    ),
    Language.RUST: (
        r"use (?:\w+::)+",
        r"\s*(?:pub(?:\(\w+\))? )?(?:async )?fn \w+.*[{(]\s*$",
        r"\s*let mut ",
        r"impl\b.*\{\s*$",
        r"\s*#!?\[\w+.*\]\s*$",
        r"pub (?:mod|struct|enum|trait) |mod \w+;",
    ),
    Language.JAVA: (
        r"package [\w.]+;",
        r"import (?:static )?[\w.]+(?:\.\*)?;",
        r"\s*@Override\b",
        r"\s*public (?:static |final |abstract )*(?:class|interface|enum|record) ",
    ),
    Language.C: (
        r"#include [<\"][\w./]+\.h[>\"]",
        r"typedef (?:struct|enum|unsigned)",
        r"#define [A-Z_]+",
        r"static \w+ \*?\w+\(",
    ),
    Language.CPP: (
        r"#include <[a-z_]+>\s*$",
        r"using namespace |template ?<|namespace \w+.*\{",
        r"\s*(?:public|private|protected):\s*$",
        r".*\bstd::",
    ),
    Language.RUBY: (
        r"require(?:_relative)? ['\"]",
        r"\s*def (?:self\.)?\w+[?!]?(?:\([^:]*\))?\s*$",
        r"\s*attr_(?:reader|accessor|writer) :",
        r"module [A-Z][\w:]*\s*$|class [A-Z]\w*(?: < [\w:]+)?\s*$",
    ),
    Language.CSHARP: (
        r"using (?:static )?[A-Z][\w.]*;",
        r"namespace [A-Z][\w.]*[;{]?\s*$",
        r".*\{ get; ",
        r"\s*/// ?<summary>",
    ),
    Language.KOTLIN: (
        r"\s*(?:(?:private|override|suspend|inline|internal|open) )*fun (?:<.*> )?[\w.]+\(",
        r"\s*(?:data|sealed|open) class ",
        r"package [\w.]+\.\w+\s*$",
        r"import [\w.]+\.[A-Z]\w*\s*$",
        r"\s*val \w+",
    ),
    Language.SWIFT: (
        r"import (?:Foundation|UIKit|SwiftUI|Combine|XCTest)\s*$",
        r"\s*(?:(?:private|public|override|static|mutating|open) )*func \w+\(.*->.*\{\s*$",
        r"\s*guard let |extension \w+.*\{\s*$",
        r"\s*(?:@\w+ )?(?:private )?(?:let|var) \w+: [A-Z\[]",
    ),
}
# Lines of the first language count for the second, if the second has enough lines of its own.
_WIDER = (
    (Language.JAVASCRIPT, Language.TYPESCRIPT),
    (Language.C, Language.CPP),
    (Language.JAVA, Language.CSHARP),
)


def file_name(path: str | None) -> str:
    """The last part of a path with either kind of slash."""
    return (path or "").replace("\\", "/").rpartition("/")[2]


def language_of(path: str | None, head: bytes) -> Language | None:
    """Returns the language by the ending of the path, else by the text, if there is one; None if unknown.
    Reads at most 8 KiB."""
    name = file_name(path).strip().lower()
    language = _BY_NAME.get(name) or _BY_EXTENSION.get(name.rpartition(".")[2] if "." in name else "")
    if language or not head:
        return language
    return _of_text(head[:_LOOKED_AT])


@lru_cache(maxsize=8)
def _of_text(head: bytes) -> Language | None:
    return _declared(head) or _most_signs(head.split(b"\n", _MOST_LINES)[:_MOST_LINES])[0]


def language_in(head: bytes, lines: list[bytes]) -> Language | None:
    """Returns the language of a text that may not be source. The signs of the language must be a share of the
    lines, not counting lines that may be comments."""
    if declared := _declared(head):
        return declared
    language, count = _most_signs(lines)
    if count >= _LEAST_SHARE * len(lines):
        return language
    others = sum(1 for line in lines if not _COMMENT.match(line)) if language else 0
    return language if count >= _LEAST_SHARE * others else None


_LANGUAGES = tuple(_SIGNS)


@cache
def _signs() -> Callable[[bytes], list[int] | None]:
    """Finds the languages, by place in `_LANGUAGES`, that have a sign at the start of a line."""
    return starts("|".join(_SIGNS[language]) for language in _LANGUAGES)


def _declared(head: bytes) -> Language | None:
    shebang = _SHEBANG.match(head)
    if shebang:
        name = shebang[1].decode()
        return _INTERPRETERS.get(name) or (Language(name) if name in list(Language) else Language.SHELL)
    if head.lstrip().startswith(b"<?php"):
        return Language.PHP
    return None


def _most_signs(every: list[bytes]) -> tuple[Language | None, int]:
    """Returns the language with the most signs, and the number of lines with its signs."""
    lines = (line[:_LINE] for line in filterfalse(_NO_SIGN.match, every))
    places = Counter(chain.from_iterable(filter(None, map(_signs(), lines))))
    counts = Counter({_LANGUAGES[place]: count for place, count in places.items()})
    for narrow, wide in _WIDER:
        if counts[wide] >= _ENOUGH:
            counts[wide] += counts.pop(narrow, 0)
    if not counts:
        return None, 0
    first = max(counts, key=counts.__getitem__)
    count = counts.pop(first)
    is_first = count >= max(_ENOUGH, 2 * max(counts.values(), default=0))
    return first if is_first else None, count


_SLASHES = r"//[^\n]*+"
_BLOCK = r"/\*(?>(?:[^*]++|\*(?!/))*)(?>(?:\*/)?)"
_HASH = r"#[^\n]*+"
_HASH_WORD = r"#(?<![^\s;(){}\[\],]#)[^\n]*+"
_DOUBLE = r'"(?>(?:[^"\\\n]++|\\.)*)"?+'
_SINGLE = r"'(?>(?:[^'\\\n]++|\\.)*)'?+"
_DOUBLE_LINES = r'"(?>(?:[^"\\]++|\\.)*)"?+'
_SINGLE_LINES = r"'(?>(?:[^'\\]++|\\.)*)'?+"
_CHARACTER = r"'(?:[^'\\\n]|\\[^\n][^'\n]{0,8})'"
_TEMPLATE_TEXT = r"`(?>(?:[^`\\]++|\\.)*)`?+"
_RAW_TICKS = r"`[^`]*+`?+"
_TRIPLE_DOUBLE = r'"""(?>(?:[^"\\]++|\\.|"(?!""))*)(?>(?:""")?)'
_TRIPLE_SINGLE = r"'''(?>(?:[^'\\]++|\\.|'(?!''))*)(?>(?:''')?)"
_TRIPLE_RAW = r'"""(?>(?:[^"]++|"(?!""))*)(?>(?:""")?)'
_REGEX = (
    r"/(?:(?<=[=(,:\[!&|?{};+]/)|(?<=[=(,:\[!&|?{};+] /)|(?<=return /))(?![/*])"
    r"(?>(?:[^/\\\[\n]++|\\[^\n]|\[(?>(?:[^\]\\\n]++|\\[^\n])*)\]?+)+)/?+"
)


def _here_document(opening: str, tag: str, closing: str) -> str:
    """A here-document of at most 300 lines, even if unclosed: looking for each end again would be slow."""
    return (
        rf"{opening}[-~]?+['\"]?(?P<tag>{tag})['\"]?[^\n]{{0,300}}\n"
        rf"(?>(?:(?![ \t]*(?P=tag){closing})[^\n]*+\n){{0,300}})(?:[ \t]*(?P=tag){closing})?"
    )


_SHELL_HERE = _here_document(r"<<(?<!<<<)(?!<)", r"[A-Za-z_]\w{0,40}", r"$")
_UPPER_HERE = _here_document(r"<<(?<!<<<)(?!<)", r"[A-Z_]\w{0,40}", r"$")
_PHP_HERE = _here_document(r"<<<[ \t]*+", r"[A-Za-z_]\w{0,40}", r"\b")

_SCRIPT_TOKENS = (_SLASHES, _BLOCK, _REGEX, _DOUBLE, _SINGLE, _TEMPLATE_TEXT)
_C_TOKENS = (_SLASHES, _BLOCK, _DOUBLE, _CHARACTER)
_RUBY_TOKENS = (
    r"\n=begin\b(?>(?:[^\n]*+\n(?!=end))*)",
    r"\n__END__\b[\s\S]*+",
    _HASH_WORD,
    _UPPER_HERE,
    r"%[wWiIqQr]?(?:\([^()]*+\)|\[[^\[\]]*+\]|\{[^{}]*+\}|\|[^|\n]*+\||![^!\n]*+!)",
    r"/(?<=[(,=~|&! ]/)(?![\s/=])(?>(?:[^/\\\n]++|\\.)+)/?+",
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
        r'r(?P<m>#{0,8})"(?>(?:[^"]++|"(?!(?P=m)))*)(?:"(?P=m))?',
        _DOUBLE_LINES,
        _CHARACTER,
    ),
    Language.JAVA: (_SLASHES, _BLOCK, _TRIPLE_DOUBLE, _DOUBLE, _CHARACTER),
    Language.C: _C_TOKENS,
    Language.CPP: (r'R"(?P<m>[^()\s\\"]{0,16})\((?>(?:[^)]++|\)(?!(?P=m)"))*)(?:\)(?P=m)")?', *_C_TOKENS),
    Language.RUBY: _RUBY_TOKENS,
    Language.CSHARP: (_SLASHES, _BLOCK, r'@\$?"(?>(?:[^"]++|"")*)"?+', _TRIPLE_RAW, _DOUBLE, _CHARACTER),
    Language.SHELL: (r"\\.", _HASH_WORD, _SHELL_HERE, _DOUBLE_LINES, r"'[^']*+'?+"),
    Language.PHP: (
        r"\?>(?>(?:[^<]++|<(?!\?))*)",
        _SLASHES,
        r"#(?!\[)[^\n]*+",
        _BLOCK,
        _PHP_HERE,
        _DOUBLE_LINES,
        _SINGLE_LINES,
    ),
    Language.KOTLIN: (_SLASHES, _BLOCK, _TRIPLE_RAW, _DOUBLE, _CHARACTER),
    Language.SWIFT: (_SLASHES, _BLOCK, _TRIPLE_DOUBLE, _DOUBLE),
}

TOKENS = {
    language: re.compile("|".join(patterns).encode(), re.DOTALL | re.MULTILINE)
    for language, patterns in _PATTERNS.items()
}
"""Each pattern matches one string or comment."""
