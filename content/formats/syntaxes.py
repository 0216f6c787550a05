"""Patterns of lines that begin a definition, by language.

Every repetition is possessive or bounded: a line takes a few microseconds at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from content.formats.languages import Language


class Nesting(Enum):
    """What shows the definition that encloses a line."""

    BRACES = b"{}"
    BRACKETS = b"{}()"
    INDENT = b""


@dataclass(frozen=True, slots=True)
class Syntax:
    """`rules` matches a newline, the group `indent`, and for each rule a group `r<number>`. The name is in
    its group `n<number>`, if it has one; the keyword in its group `w<number>`, else in `keywords`. `within`
    says what a keyword must stand directly in: a keyword, or "" for the top of the file. `flush` is true
    where only a scope, such as a namespace, encloses a line without indentation."""

    rules: bytes
    keywords: tuple[str, ...]
    nesting: Nesting
    within: Mapping[str, frozenset[str]] = field(default_factory=dict)
    flush: bool = False


# Parts of definitions: parentheses and angle brackets of at most four levels, names, modifiers.

_PARENS = r"\((?>(?:[^()]++|\((?>(?:[^()]++|\((?>(?:[^()]++|\([^()]*+\))*)\))*)\))*)\)"
_ANGLES = (
    r"<(?>(?:[^<>;{}()]++|PARENS|\{[^{}]*+\}|(?<=[-=])>"
    r"|<(?>(?:[^<>;{}()]++|PARENS|<(?>(?:[^<>;{}()]++|<[^<>;{}()]*+>)*)>)*)>)*)>"
).replace("PARENS", _PARENS)
_ID = r"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*+"
_NAME = rf"(?P<n>{_ID})"
_GAP = r"[ \t]++"
_ANY_GAP = r"[ \t]*+"


# Half of the lines are blank or close a bracket: to try each rule there would take a microsecond a line.
_MAY_DEFINE = r"(?=[^\s)\];}]|\}(?![;,)]*+\n))"


def _modifiers(words: str, after: str = "") -> str:
    return rf"(?>(?:(?:{words.replace(' ', '|')}){after}{_GAP}){{0,9}})"


def _not(words: str) -> str:
    return rf"(?!(?:{words.replace(' ', '|')})\b)"


def _syntax(
    *rules: tuple[str, str],
    nesting: Nesting = Nesting.BRACES,
    within: Mapping[str, str] | None = None,
    flush: bool = False,
) -> Syntax:
    """`rules` are pairs of keyword and pattern; without a keyword the group `w` of the pattern is it.
    `within` lists the places of a keyword with commas between them."""
    numbered = (
        f"(?P<r{number}>{pattern})".replace("(?P<n>", f"(?P<n{number}>").replace("(?P<w>", f"(?P<w{number}>")
        for number, (_, pattern) in enumerate(rules)
    )
    return Syntax(
        rf"\n(?P<indent>[ \t]*+){_MAY_DEFINE}(?:{'|'.join(numbered)})".encode(),
        tuple(keyword for keyword, _ in rules),
        nesting,
        {keyword: frozenset(places.split(",")) for keyword, places in (within or {}).items()},
        flush,
    )


# JavaScript and TypeScript.
_ANNOTATIONS = rf"(?>(?:@[\w.:]++(?>(?:{_PARENS})?){_GAP}){{0,9}})"
_ASYNC = rf"(?>(?:async\b{_ANY_GAP})?)"
_SCRIPT_TYPE = rf"(?:[^;{{}}=()]{{1,300}}+|=>|{_PARENS}|\{{[^{{}}]{{0,300}}+\}}(?=[^;}}\n]*+[{{|&\[>,)=]))"
_RETURNS = rf"(?>(?:{_ANY_GAP}:(?>{_SCRIPT_TYPE}{{1,9}}))?)"
_ARROW = rf"(?>(?:\s*+:(?>(?:[^;{{}}=()]{{1,300}}+|{_PARENS}|\{{[^{{}}]{{0,300}}+\}}){{1,9}}))?)\s*+=>"
_CALLABLE = rf"{_ASYNC}(?:function\b|(?:{_ANGLES})?{_PARENS}{_ARROW}|{_ID}{_ANY_GAP}=>)"
_IS_CALLABLE = rf"(?:{_ANY_GAP}[?!]?:(?:[^=;\n]|=>){{1,200}}?)?{_ANY_GAP}=\s*+{_CALLABLE}"
_MEMBER = rf"(?P<n>(?:\#?{_ID}|\"[^\"\n]*+\"|'[^'\n]*+'|\[[^\]\n]*+\]|\d++))"
_SCRIPT_MODIFIERS = _modifiers(
    "export default declare abstract async public private protected static get set override readonly",
    r"(?!\s*+[(=;])",
)
_NO_CALL = _not("if for while switch catch function with return await super new throw typeof else do")
_SCRIPT_RULES = (
    ("function", rf"{_SCRIPT_MODIFIERS}function\b{_ANY_GAP}\*?+{_ANY_GAP}{_NAME}"),
    ("class", rf"(?>(?:[\w$.]++{_ANY_GAP}={_ANY_GAP})?){_SCRIPT_MODIFIERS}class{_GAP}{_NAME}"),
    ("function", rf"(?:export{_GAP})?(?:const|let|var){_GAP}{_NAME}{_IS_CALLABLE}"),
    (
        "function",
        rf"(?:{_ID}(?>(?:\.{_ID})*){_ANY_GAP}=(?![=>]){_ANY_GAP}){{0,3}}"
        rf"(?P<n>{_ID}(?>(?:\.\#?{_ID})+)){_ANY_GAP}=\s*+\(?{_CALLABLE}",
    ),
    ("function", rf",?{_ANY_GAP}{_MEMBER}{_ANY_GAP}:\s*+{_ASYNC}function\b"),
    ("function", rf",{_ANY_GAP}{_NAME}{_ANY_GAP}=\s*+{_CALLABLE}"),
    (
        "method",
        rf"{_ANNOTATIONS}{_SCRIPT_MODIFIERS}\*?+{_ANY_GAP}{_NO_CALL}{_MEMBER}\??{_ANY_GAP}"
        rf"(?:{_ANGLES})?{_PARENS}{_RETURNS}\s*+(?=\{{)",
    ),
    ("field", rf"{_ANNOTATIONS}{_SCRIPT_MODIFIERS}{_MEMBER}{_IS_CALLABLE}"),
)
_TYPED_RULES = (
    (
        "method",
        rf"(?=[\w \t]{{0,80}}?\babstract[ \t]){_SCRIPT_MODIFIERS}{_NAME}\??{_ANY_GAP}(?:{_ANGLES})?\(",
    ),
    (
        "",
        rf"{_SCRIPT_MODIFIERS}(?:const{_GAP})?(?P<w>interface|enum|namespace|module){_GAP}"
        rf"(?P<n>{_ID}(?>(?:\.{_ID})*)|\"[^\"\n]*+\"|'[^'\n]*+')",
    ),
    ("type", rf"{_SCRIPT_MODIFIERS}type{_GAP}{_NAME}{_ANY_GAP}(?:{_ANGLES})?\s*+="),
    *_SCRIPT_RULES,
)

# Java and C#.
_JAVA_MODIFIERS = (
    r"(?>(?:(?:public|private|protected|static|final|abstract|native|synchronized|default|sealed|non-sealed|strictfp"
    rf"|transient){_GAP}|@(?!interface\b)[\w.]++{_ANY_GAP}(?>(?:{_PARENS})?){_ANY_GAP}){{0,9}})"
)
_SHARP_MODIFIERS = (
    r"(?>(?:(?:public|private|protected|internal|static|sealed|abstract|partial|readonly|ref|override|virtual|async"
    rf"|extern|unsafe|new|file|required){_GAP}|\[[^\]\n]*+\]{_ANY_GAP}){{0,9}})"
)
_NO_TYPE = _not(
    "return new throw else case assert do yield await goto using in is select from where package import "
    "namespace class struct interface enum record delegate typedef delete if for while switch catch"
)
_TYPE = (
    rf"{_NO_TYPE}{_ID}(?>(?:[.:]{{1,2}}{_ID})*)(?:{_ANY_GAP}{_ANGLES})?(?>(?:\.{_ID})*)[?*]*+"
    r"(?>(?:[ \t]*+\[[, \t]*+\])*)\??"
)
_THROWS = r"(?>(?:\s*+\[\])*)(?>(?:\s*+throws\b[^{};]{0,300}+)?)\s*+"
_WHERE = r"\s*+(?>(?:where\b[^{};=]{0,300}+)?)"

# C and C++.
_NO_C_TYPE = _not(
    "return new throw else case do goto using namespace typedef delete if for while switch catch sizeof "
    "public private protected defined"
)
_C_TYPE = (
    rf"(?>(?!operator\b)(?:::)?{_ID}(?>(?:{_ANY_GAP}{_ANGLES})?)(?>(?:::{_ID}(?>(?:{_ANGLES})?))*)"
    rf"(?>(?:{_ANY_GAP}{_PARENS}(?=[ \t]*+\w))?)[ \t*&]++)"
)
_HAS_PARENS = r"(?=[^\n(]{1,300}(?:\n[ \t]*+)?\()"
_C_NAME = (
    rf"(?P<n>(?>(?:{_ID}(?>(?:{_ANGLES})?)::)*)(?:operator\b{_ANY_GAP}(?:\(\)|\[\]|(?:new|delete){_ANY_GAP}\[\]"
    rf"|[^\s\w(]++|[\w \t*&:]++)|~?{_ID}(?>(?:{_ANGLES})?)))"
)
_C_AFTER = (
    r"(?>(?:\s*+(?:const\b|volatile\b|override\b|final\b|try\b|&&?"
    rf"|(?:noexcept|throw|__attribute__|[A-Z][A-Z\d_]++)\b[ \t]*+(?>(?:{_PARENS})?)|->[^;{{}}]{{1,300}}+"
    r"|=[ \t]*+(?:0|default|delete))){0,9})\s*+(?=[{;]|:(?!:))"
)
_TEMPLATE = rf"(?>(?:template{_ANY_GAP}{_ANGLES}{_ANY_GAP}){{0,4}})"
_C_STRUCT = rf"{_TEMPLATE}{_modifiers('typedef static const extern volatile')}"
_ATTRIBUTES = (
    rf"(?:[A-Z_][A-Z\d_]++(?:{_PARENS})?{_GAP}|__attribute__\s*+{_PARENS}{_ANY_GAP}|\[\[[^\]]*+\]\]{_ANY_GAP}"
    rf"|alignas{_PARENS}{_ANY_GAP}){{0,5}}"
)
_C_RULES = (
    ("define", rf"#{_ANY_GAP}define{_GAP}{_NAME}(?=\()(?>(?:[^\\\n]++|\\[\s\S])*)"),
    ("skipped", r"#(?>(?:[^\\\n]++|\\[\s\S])*)"),
    ("extern", r"extern[ \t]*+\"[^\"\n]*+\"\s*+(?=\{)"),
    (
        "",
        rf"{_C_STRUCT}(?P<w>struct|union|class|enum)(?:{_GAP}(?:class|struct))?{_GAP}{_ATTRIBUTES}"
        rf"(?P<n>{_ID}(?:{_ANGLES})?(?>(?:::{_ID}(?:{_ANGLES})?)*))(?:{_GAP}final)?\s*+"
        rf"(?::(?!:)[^;{{}}()]{{0,300}}+(?>(?:{_PARENS}[^;{{}}()]{{0,300}}+){{0,9}}))?(?=\{{)",
    ),
    ("anonymous", rf"{_C_STRUCT}(?:struct|union|enum)\s*+(?=\{{)"),
    ("typedef", rf"typedef\b[^;{{}}()\n]{{0,300}}?\b{_NAME}(?>(?:\[[^\]\n]*+\])*){_ANY_GAP};"),
    ("typedef", rf"typedef\b[^;{{}}()\n]{{0,300}}+\({_ANY_GAP}\*{_ANY_GAP}{_NAME}{_ANY_GAP}\)"),
    ("typedef", rf"typedef\b[^;{{}}()\n]{{0,300}}?\b{_NAME}{_ANY_GAP}\("),
    ("closing", rf"(?=\}}(?>(?:[ \t*]|__attribute__{_ANY_GAP}{_PARENS})*){_NAME}{_ANY_GAP}[;,\[])"),
    ("namespace", rf"(?:inline{_GAP})?namespace{_GAP}{_ATTRIBUTES}(?P<n>{_ID}(?>(?:::{_ID})*))\s*+(?=\{{)"),
    ("scope", r"(?:inline[ \t]++)?namespace\s*+(?=\{)"),
    ("using", rf"{_TEMPLATE}using{_GAP}{_NAME}[^=;{{}}\n]*+="),
    ("concept", rf"{_TEMPLATE}concept{_GAP}{_NAME}{_ANY_GAP}="),
    (
        "function",
        rf"{_HAS_PARENS}{_TEMPLATE}(?:{_NO_C_TYPE}{_C_TYPE}){{1,9}}{_NO_C_TYPE}{_C_NAME}\s*+{_PARENS}{_C_AFTER}",
    ),
    (
        "function",
        rf"{_HAS_PARENS}{_TEMPLATE}{_NO_C_TYPE}{_C_NAME}\s*+{_PARENS}{_C_AFTER}(?=[{{:]|(?<=default);)",
    ),
    ("member", rf"{_HAS_PARENS}{_NO_C_TYPE}{_C_NAME}\s*+{_PARENS}{_C_AFTER}(?=;)"),
)
_C_TYPES = "class,struct,union,anonymous"
_C_PLACES = {"function": f",namespace,scope,extern,{_C_TYPES}", "member": _C_TYPES}

_RUST_MODIFIERS = (
    r"(?>(?:(?:pub(?:\([^()\n]*+\))?|default|const|async|unsafe|auto|extern(?:[ \t]*+\"[^\"\n]*+\")?|safe)"
    r"[ \t]++){0,9})"
)
_KOTLIN_MODIFIERS = _ANNOTATIONS + _modifiers(
    "public private protected internal open abstract final sealed data inner enum annotation value inline "
    "override suspend operator infix tailrec external expect actual companion const noinline lateinit"
)
_SWIFT_MODIFIERS = _ANNOTATIONS + _modifiers(
    "public private fileprivate internal open package static final override mutating nonmutating indirect "
    r"class(?=[\t\x20]+func) required convenience optional dynamic prefix postfix infix nonisolated "
    "distributed isolated consuming borrowing lazy",
    rf"(?:{_PARENS})?",
)
_RUBY_NAME = (
    r"(?:\w++(?:\.|::))?(?:\w++(?:[?!]|=(?=[ \t]*+[\w(]))?|\[\]=?|[-+!~]@|<=>|===?|=~|![=~]?|\*\*|<<|>>"
    r"|[<>]=?|[-+*/%&|^~]|`)"
)

SYNTAXES: Mapping[Language, Syntax] = {
    Language.PYTHON: _syntax(
        ("", rf"(?:async{_GAP})?(?P<w>class|def){_GAP}(?P<n>[\w\x80-\xff]++)"), nesting=Nesting.INDENT
    ),
    Language.JAVASCRIPT: _syntax(*_SCRIPT_RULES, within={"field": "class"}),
    Language.TYPESCRIPT: _syntax(*_TYPED_RULES, within={"field": "class"}),
    Language.TSX: _syntax(*_TYPED_RULES, within={"field": "class"}),
    Language.GO: _syntax(
        ("func", rf"func{_GAP}(?P<n>(?:\([^()\n]*+\){_ANY_GAP})?{_ID})"),
        ("", rf"type{_GAP}{_NAME}(?:\[[^\n]{{0,200}}?\])?{_GAP}(?P<w>struct|interface)\b"),
        ("type", rf"type{_GAP}{_NAME}(?=[ \t\[])"),
        ("group", r"type[ \t]*+(?=\()"),
        ("member", rf"{_NAME}(?:\[\w[^\n]{{0,200}}?\])?{_GAP}(?P<w>struct|interface)\b"),
        ("member_type", rf"{_NAME}(?:\[\w[^\n]{{0,200}}?\])?{_GAP}(?:={_ANY_GAP})?[\w*\[(.]"),
        nesting=Nesting.BRACKETS,
        within={"member": "group", "member_type": "group"},
    ),
    Language.RUST: _syntax(
        ("fn", rf"{_RUST_MODIFIERS}fn{_GAP}(?:r#)?{_NAME}"),
        (
            "",
            rf"{_RUST_MODIFIERS}(?P<w>struct|enum|union|trait|mod){_GAP}{_NAME}"
            r"(?![ \t]*+[=,.:)](?!:?[ \t]))",
        ),
        ("type", rf"{_RUST_MODIFIERS}type{_GAP}{_NAME}[^;{{}}=]{{0,300}}+="),
        (
            "impl",
            rf"{_RUST_MODIFIERS}impl\b(?:{_ANY_GAP}{_ANGLES})?\s*+(?:const\s++|\?)?"
            r"(?P<n>[^\s{;](?>(?:[^{;\s]++|\s++(?!where\b|\{)){0,80}))",
        ),
        ("macro_rules", rf"macro_rules!{_ANY_GAP}{_NAME}"),
    ),
    Language.JAVA: _syntax(
        ("", rf"{_JAVA_MODIFIERS}@?(?P<w>class|interface|enum|record(?=[ \t]+\w+[ \t]*[(<])){_GAP}{_NAME}"),
        ("constructor", rf"{_JAVA_MODIFIERS}(?:{_ANGLES}{_ANY_GAP})?{_NAME}\s*+{_PARENS}{_THROWS}(?=\{{)"),
        ("constructor", rf"{_JAVA_MODIFIERS}{_NAME}\s*+(?=\{{)"),
        (
            "method",
            rf"{_JAVA_MODIFIERS}(?:{_ANGLES}{_ANY_GAP})?{_JAVA_MODIFIERS}{_TYPE}\s++{_NAME}\s*+{_PARENS}"
            rf"{_THROWS}(?=[{{;]|default\b)",
        ),
    ),
    Language.C: _syntax(*_C_RULES, within=_C_PLACES, flush=True),
    Language.CPP: _syntax(*_C_RULES, within=_C_PLACES, flush=True),
    Language.RUBY: _syntax(
        ("", r"(?P<w>class|module)[ \t]++(?P<n>(?:::)?[A-Z]\w*+(?>(?:::\w++)*))"),
        (
            "def",
            r"(?:(?:private|public|protected|private_class_method|module_function|memoize)[ \t]++)?"
            rf"def[ \t]++(?P<n>{_RUBY_NAME})",
        ),
        nesting=Nesting.INDENT,
    ),
    Language.CSHARP: _syntax(
        ("skipped", r"#[^\n]*+"),
        (
            "",
            rf"{_SHARP_MODIFIERS}(?P<w>class|interface|struct|enum|namespace|record)"
            rf"(?:{_GAP}(?:struct|class))?{_GAP}(?P<n>{_ID}(?>(?:\.{_ID})*))",
        ),
        ("delegate", rf"{_SHARP_MODIFIERS}delegate{_GAP}{_TYPE}{_GAP}{_NAME}"),
        (
            "constructor",
            rf"{_SHARP_MODIFIERS}{_NAME}\s*+{_PARENS}\s*+(?::\s*+(?:this|base)\s*+{_PARENS}\s*+)?(?=\{{|=>)",
        ),
        (
            "method",
            rf"{_SHARP_MODIFIERS}(?:{_TYPE}|{_PARENS}\??)\s++(?>(?:{_ID}(?:{_ANGLES})?(?:\.|::))*){_NAME}\s*+"
            rf"(?:{_ANGLES})?\s*+{_PARENS}{_WHERE}(?=\{{|=>|;)",
        ),
    ),
    Language.SHELL: _syntax(
        ("function", r"function[ \t]++(?P<n>[^\s(){}<>|;&$\"'`]++)"),
        ("function", r"(?P<n>[^\s(){}<>|;&$\"'`=#]++)[ \t]*+\([ \t]*+\)"),
        nesting=Nesting.INDENT,
    ),
    Language.PHP: _syntax(
        ("namespace", r"(?:<\?php[ \t]++)?namespace[ \t]++(?P<n>\w[\w\\]*+)"),
        (
            "function",
            rf"{_modifiers('abstract final public private protected static readonly')}"
            rf"function{_GAP}&?{_ANY_GAP}{_NAME}\s*+\(",
        ),
        (
            "",
            rf"{_modifiers('abstract final readonly')}(?P<w>class|interface|trait|enum){_GAP}{_NAME}"
            r"(?=[\s:{])",
        ),
    ),
    Language.KOTLIN: _syntax(
        ("", rf"{_KOTLIN_MODIFIERS}(?:fun{_GAP})?(?P<w>class|interface|object){_GAP}{_NAME}"),
        ("anonymous", rf"{_KOTLIN_MODIFIERS}(?:object|init)\b[^\n{{]{{0,200}}+(?=\{{)"),
        ("typealias", rf"{_KOTLIN_MODIFIERS}typealias{_GAP}{_NAME}"),
        (
            "fun",
            rf"{_KOTLIN_MODIFIERS}fun\b\s*+(?:{_ANGLES}\s*+)?"
            rf"(?:(?:{_ID}(?:{_ANGLES})?\??\s*\.|{_PARENS}\??\.)\s*+){{0,5}}"
            rf"(?P<n>{_ID}|`[^`\n]*+`){_ANY_GAP}(?:{_ANGLES})?\(",
        ),
    ),
    Language.SWIFT: _syntax(
        (
            "",
            rf"{_SWIFT_MODIFIERS}(?P<w>class(?![ \t]+(?:func|var|let)\b)|struct|enum|extension|actor"
            rf"|protocol|typealias){_GAP}(?P<n>{_ID}(?>(?:{_ANY_GAP}\.{_ID})*))",
        ),
        ("func", rf"{_SWIFT_MODIFIERS}func{_GAP}(?P<n>{_ID}|`\w+`|[^\s\w(]++)"),
        ("func", rf"{_SWIFT_MODIFIERS}(?P<n>init)\b[?!]?{_ANY_GAP}[<(]"),
    ),
}
