"""Parses an instruction: words, their synonyms, phrases, identifiers, patterns, the look of the answer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from content.patterns import Pattern
from domain.errors import BadPattern
from extraction.retrieve.asking import MONTHS, as_number, rows_asked, words_of
from extraction.retrieve.index import pieces

# Words that programs, pages and tables use for each other, and the words of other languages for them. One
# group a line. A word may stand in several groups.
_GROUPS = """
refused denied rejected forbidden unauthorized prohibited blocked
failed failure error exception fatal failures crashed
succeeded success successful ok passed
dns resolver resolve lookup lookups nslookup
empty none null nil missing
begin begins began start starts started beginning
end ends ended stop stopped finish finished until
duration took elapsed takes ms seconds latency runtime 历时 用时 dauer dauert durée duración
long duration elapsed took ms seconds 多长
price cost costs amount fee charge usd eur 价格 票价 元 preis kosten prix coût precio costo
maximum max limit most upper 最大 höchste maximal máximo
minimum min least lower 最小 mindestens mínimo
quantity qty count amount units 数量 menge anzahl cantidad quantité
number count total num nr 数 anzahl número nombre
average avg mean 平均 durchschnitt promedio moyenne
address addr ip host 地址 adresse dirección
server host node
company vendor manufacturer brand maker supplier organization 公司 firma hersteller empresa marca
discontinued unavailable retired obsolete deprecated
phone telephone tel mobile 电话 telefon teléfono
email mail e-mail 邮箱 correo
user username login account uid 用户 benutzer usuario utilisateur
password passwd pwd passphrase 密码 passwort contraseña
configuration config conf settings options preferences einstellungen configuración
connection connections conn connect connected verbindung conexión connexion
message msg text
memory mem ram rss heap 内存 speicher memoria
directory dir folder path 目录 verzeichnis ordner directorio carpeta
file filename path 文件 datei archivo fichier
version release 版本 ausgabe versión
removed deleted purged unlink delete remove gelöscht eliminado
created added new made inserted
changed modified updated edited geändert modificado
previous prev before
identifier id key uid uuid guid
description desc summary beschreibung descripción
temperature temp
population inhabitants people residents einwohner población habitants 人口
country nation land país pays 国家
city town stadt ciudad ville 城市
capital hauptstadt
author writer creator written autor
title name heading titel título
date day datum fecha 日期
time timestamp zeit uhrzeit hora heure 时间
train zug tren 车次 列车
departure departs 出发 abfahrt salida
arrival arrives 到达 ankunft llegada
seat seats ticket tickets 票 座
warning warn warnings warnung advertencia
exit rc returncode status code
size bytes length größe tamaño taille 大小
license licence licensed lizenz licencia
dependency dependencies requires package packages abhängigkeiten dependencias
test tests spec pruebas
kernel module modules
environment env variable variables
timeout timed deadline expired
percent percentage % ratio rate
weight kg mass
width wide breit breite ancho largeur 宽
height high hoch höhe alto hauteur 高
dimensions size
runtime clock wall elapsed duration
language lang locale
currency usd eur gbp
overwrite overwrites shred wipe
compress compressed gzip xz bzip2 zstd zip
download curl wget fetch
checksum hash sha256 md5 digest
schedule scheduled cron crontab timer
editor vi vim nano emacs
browser chrome chromium firefox safari lynx
database postgres postgresql mysql mariadb sqlite redis mongodb
"""
_BY_WORD: dict[str, list[str]] = {}
for _line in _GROUPS.strip().splitlines():
    for _word in _line.split():
        _BY_WORD.setdefault(_word, []).extend(other for other in _line.split() if other != _word)


def synonyms(words: Iterable[str]) -> tuple[str, ...]:
    """Words that the data may use instead, without the given ones."""
    own = {word.lower() for word in words}
    others = (other for word in own for other in _BY_WORD.get(word, ()))
    return tuple(sorted(other for other in set(others) if other not in own))


_MOST_CHARS = 2000
_MOST_OF_A_KIND = 40
_MOST_PATTERNS = 8
_MOST_PARTS = 4

_QUOTED = re.compile(
    r"\"([^\"\n]{2,200})\"|`([^`\n]{2,200})`|(?<!\w)'([^'\n]{2,200})'(?!\w)|“([^”\n]{2,200})”"
)
# A comma between digits may separate thousands.
_WORD = re.compile(r"[\w$@#%/\\^.(\[-](?:[^\s\"'`“”,;]|(?<=\d),(?=\d{3}))*")
_TRIM = "?.:,;!()[]{}<>=&*^$\\-\"'"
_AROUND = ",;:!?\"'`“”"
_IDENTIFIER = re.compile(r"\w[./:@+_-]+\w|[a-z][A-Z]|[A-Z]{2}[a-z]")
_NAME = re.compile(r"(?<=[\w,;:] )[A-Z][A-Za-z]*[a-z]\w*")
_JOINED = words_of(
    r"[?;]\s+|,?\s+(?:and|und|y|et|e)\s+(?=(?:what|which|how|where|when|who|why|was|welche|wie|wo|wann|qué|cuál|quel"
    r"|quelle|comment|combien)\b)"
)
_ENUMERATION = re.compile(
    r"\b([\w.+-]{0,60}\w)(?:,| (?:and|or|und|oder|y|et|e)(?: (?:the|der|die|das|el|la|le))?| [&/]|、|和) "
    r"(?=([\w.+-]{0,60}\w))"
)
_NUMBER = re.compile(r"\d[\d,]{2,}\Z")
_PARTS = re.compile(r"(?:[^\w,]|,(?!\d{3})|(?<!\d),)+|_+")
_PATTERN = re.compile(r"\S\|\S|\\[dwsbDWS.]|\.[*+]|\[[^\]\s]+\][*+?]|\(\?[:i]")
_ORDINAL = words_of(r"\b(\d+)(?:st|nd|rd|th)\b")
_MONTH = words_of(rf"\b(?:{'|'.join(f'({one[:3]}){one[3:]}' for one in MONTHS if one != 'may')})\b")

# Stop words of a question.
_ASKING_WORDS = """
a about all also am an and any are as at be been being both but by can cannot could did do does each else
exact exactly extract find for from gave get give had happen happened happens has have her here him his how
i if in into is it its itself just list located look made many me more most much must my no nor not of on one
only or other our out please provide quote report return say says shall she should show shows since so some
such tell than that the their them then there these they this those to too under up upon us was we went were
what when where whether which while who whom whose why will with within would wrong you your
"""
_ASKING = frozenset(_ASKING_WORDS.split())
_ASKING_WORDS_ELSEWHERE = """
was wer wie wo wann warum welche welcher welches welchem welchen heißt viele viel gibt hat haben der die das
den dem des ein eine einer eines im in am an von vom zu zum zur und oder ist sind für mit auf aus bei nach es
qué que cuál cuáles cuándo cuánto cuántos cuántas dónde quién cómo el la los las un una de del en es son y o
por para con se al hay tiene cual
quel quelle quels quelles quand combien où qui comment est sont le les des du une dans et ou pour avec au aux
qual quais quando quanto onde quem como são os as um uma em do da dos das
chi cosa dove quale quali come sono il lo gli di nel della
"""
_ASKING_ELSEWHERE = frozenset(_ASKING_WORDS_ELSEWHERE.split())

_ENGLISH = words_of(r"\b(?:the|what|which|how|is|are|does|did|where|when|who|of)\b")


def is_stop_word(word: str) -> bool:
    return word.lower() in _ASKING


# "How long" asks for a value and is no word to find.
_HOW = words_of(r"\bhow (?:many|much|long|often|large|big|old|far|fast|high|wide)\b")

# Questions about the ends of the data.
_FIRST_WORDS = r"first|erste\w*|primer[ao]?|première?"
_LAST_WORDS = r"last|latest|letzte\w*|últim[ao]s?|ultim[ao]|dernière?"
_FIRST = words_of(rf"\b(?:{_FIRST_WORDS}|initial|top|begin\w*|start\w*)\b|第一|最初")
_LAST = words_of(rf"\b(?:{_LAST_WORDS}|final|bottom|end|ends|ended)\b|最后|最後")

# Questions about one end of what has an order: a log, commits, a numbered list. Not about its lines.
_NO_PLACE = r"(?!\W+(?:\d+ )?(?:lines?|rows?|bytes?|characters?|words?|columns?|name|names)\b)"
_OLDEST = words_of(
    rf"\b(?:{_FIRST_WORDS}|oldest|earliest|älteste\w*|premier|más antigu[ao])\b{_NO_PLACE}|第一|最初|最早"
)
_NEWEST = words_of(
    rf"\b(?:{_LAST_WORDS}|newest|most recent|neueste\w*|plus récente?)\b{_NO_PLACE}|最后|最後|最新"
)
_ORDER_WORDS = """
first oldest earliest last latest newest most recent
erste ersten erster letzte letzten letzter neueste neuesten älteste
primer primera primero último última ultimo ultima premier première dernier dernière
"""
_OF_ORDER = frozenset(_ORDER_WORDS.split())

# Words for one of the things that are in an order.
_LIST_WORDS = "commit commits event events message messages request requests release releases"
_OF_LISTS = frozenset(_LIST_WORDS.split())

# A question about the data as a whole, which its beginning describes.
_WHOLE = words_of(
    r"\b(?:this|dies(?:e[rs]?|em|en)?|ce(?:tte|t)?|est[ea]) (?!is\b|was\b|one\b)\w|这[个份篇]|この|이 "
)

# A question about what went wrong. Programs report that with the words below.
_TROUBLE = words_of(
    r"\b(?:wrong|errors?|fail\w*|problems?|issues?|bugs?|crash\w*|broke\w*|trouble\w*|incidents?"
    r"|\w*fehler\w*|fehlgeschlagen|erreurs?|échou\w*|errores|fall[oó]s?|erros?|falh\w+)\b"
    r"|错误|出错|报错|失败|异常|エラー|失敗|오류|실패"
)
_TROUBLE_WORDS = """
error fail failure exception fatal critical panic traceback denied refused abort unable timeout warning
"""
_REPORTED_TROUBLE = tuple(_TROUBLE_WORDS.split())

# A question about how much there is of the data itself.
_EXTENT = words_of(
    r"\b(?:how (?:many|long|large|big|much (?:data|text|time))|number of|counts?|sizes?|lengths?|durations?"
    r"|when (?:do|does|did|is|was)\b.{0,40}?\b(?:start|begin|end|stop|over)"
    r"|(?:first|last) (?:lines?|times?|rows?)"
    r"|(?:time|date) ?(?:span|range|period|frame)s?|(?:which|what|list|name|show)\b.{0,40}?"
    r"\b(?:columns?|fields|keys))\b"
)
_UNIT_WORDS = """
byte bytes character characters chars column columns element elements entries entry field fields item items
key keys kb kilobytes line lines mb megabytes object objects record records row rows word words
"""
_EXTENT_WORDS = """
array begin big contained contains content contents count counted counts cover covered covers csv data dataset
document duration durations end ends exist file first frame input json last large length lengths list log
logs long name named names ndjson number output overall period range result results size sizes span start
starts stop stops table text there time times total tsv
"""
_UNITS = frozenset(_UNIT_WORDS.split())
_OF_EXTENT = _UNITS | frozenset(_EXTENT_WORDS.split())

# A question of the first kind is answered by a value of the second.
_VALUES = (
    (r"how (?:many|much|long|big|large|old|often)|number of|count|size|total|bytes|population", r"\d"),
    (r"when|what (?:time|date)|date|instant|since|until|expire", r"\d\d:\d\d|\d{4}-\d\d|\b\d{9,13}\b"),
    (r"version|release", r"\d+\.\d+"),
    (r"url|link|website|address of the page", r"https?://"),
    (r"ip|address|host|peer|client", r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"),
    (r"e-?mail|who|author|contact", r"[\w.]@[\w-]"),
    (r"where|path|file|directory|folder", r"\w/\w"),
    (r"price|cost|fee|amount", r"[$€£¥]|\d+\.\d\d\b"),
)


@dataclass(frozen=True, slots=True)
class ParsedInstruction:
    """`words` are single words. The words of a phrase stand together. `quoted` were in quotes; `exact`
    are these, identifiers and numbers; `names` begin with a capital within a sentence; `enumerated` stand
    on both sides of `and` or a comma. `patterns` are regular expressions that RE2 accepts. `alternatives`
    are words that the data may use instead. `rows` is the number of rows that it asks for, as in "the ten
    largest files"; it is no word. `value` matches what an answer looks like. `about_extent`: it may ask how
    much data there is; `about_first` and `about_last`: what stands at the beginning or at the
    end of the data; `about_whole`: the data itself, as in "this document"; `about_oldest` and
    `about_newest`: which of several things is the first or the last in their order."""

    text: str
    words: tuple[str, ...]
    phrases: tuple[str, ...]
    quoted: tuple[str, ...]
    names: tuple[str, ...]
    enumerated: tuple[str, ...]
    exact: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    alternatives: tuple[str, ...]
    value: re.Pattern[str] | None
    about_extent: bool
    about_first: bool
    about_last: bool
    about_whole: bool
    about_oldest: bool
    about_newest: bool
    rows: int | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The questions that are joined in one; none if it is one."""
        questions = tuple(part for part in _JOINED.split(self.text) if len(part.split()) > 1)
        return questions[:_MOST_PARTS] if len(questions) > 1 else ()

    @property
    def ordered_words(self) -> tuple[str, ...]:
        """The words that name what is ordered, in lower case."""
        words = dict.fromkeys(word.lower() for word in self.words)
        return tuple(word for word in words if word not in _OF_ORDER | _OF_EXTENT | _OF_LISTS)

    def needs(self, word: str) -> bool:
        """False for a lower-case word that need not occur in the data: the name of a unit, such as `rows`;
        in a question about the extent also `file` or `size`, in one about an order `latest` or `first`."""
        if (self.about_oldest or self.about_newest) and word in _OF_ORDER:
            return False
        return word not in (_OF_EXTENT if self.about_extent else _UNITS)


def parse(instruction: str) -> ParsedInstruction:
    """Looks at the first 2,000 characters."""
    text = _HOW.sub(" ", instruction[:_MOST_CHARS])
    rows = rows_asked(text)
    if rows is not None:
        text = text[: rows.start(1)] + text[rows.end(1) :]
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
    exact = list(quoted)
    bare = (part.strip(_AROUND) for part in text.split())
    patterns = [one for one in (text.strip(), *exact, *bare) if _PATTERN.search(one)]
    runs = _runs(text, _ASKING if _ENGLISH.search(text) else _ASKING | _ASKING_ELSEWHERE)
    words = [word for run in runs for word in run]
    exact += [word for word in words if _IDENTIFIER.search(word) or _NUMBER.match(word)]
    words += [part for word in words for part in _PARTS.split(word) if part and part.lower() not in _ASKING]
    words = [word for word in words if not _PARTS.search(word)]
    words += [word.lower() for word in words if not word.islower()]
    words += [match[match.lastindex or 0] for one in (_ORDINAL, _MONTH) for match in one.finditer(text)]
    pairs = [pair for run in runs for pair in pairwise(run)]
    phrases = [f"{first} {second}" for first, second in pairs]
    phrases += [first + second for first, second in pairs if first.isalpha() and second.isalpha()]
    exact += [first + second for first, second in pairs if first.isalpha() and second.isdecimal()]
    return ParsedInstruction(
        text=instruction[:_MOST_CHARS],
        words=_few(words),
        phrases=_few(phrases),
        quoted=_few(quoted),
        names=_few(_NAME.findall(text)),
        enumerated=_few(_enumerated(text, words)),
        exact=_few(exact),
        patterns=tuple(_compiled(patterns)),
        alternatives=(*synonyms(words), *(_REPORTED_TROUBLE if _TROUBLE.search(text) else ())),
        value=_value(instruction[:_MOST_CHARS]),
        about_extent=_EXTENT.search(instruction[:_MOST_CHARS]) is not None,
        about_first=_FIRST.search(text) is not None,
        about_last=_LAST.search(text) is not None,
        about_whole=_WHOLE.search(text) is not None,
        about_oldest=_OLDEST.search(text) is not None,
        about_newest=_NEWEST.search(text) is not None,
        rows=None if rows is None else as_number(rows[1]),
    )


# The same of Chinese, Japanese and Korean, and particles between words.
_ASKING_CHARACTERS = re.compile(
    "什么|甚麼|怎么样?|怎样|如何|多少|哪些|哪个|哪里|哪|是否|为什么|请问|有没有|[吗呢的了是]"
    "|(?:です|ます|でした|ました)か?|でしょうか|とは|何|どの|どれ|どこ|いつ|いくつ|いくら|なぜ"
    "|(?<=[\u30a1-\u30ff\u4e00-\u9fffA-Za-z0-9])[はをがにでのとも](?![\u3041-\u3096])"
    "|무엇|얼마나|어떤|언제|어디|입니까|습니까|합니까|인가요|하나요"
)


def _runs(text: str, asking: frozenset[str]) -> list[list[str]]:
    """Words in order, split at stop words."""
    runs: list[list[str]] = [[]]
    if not text.isascii():
        text = _ASKING_CHARACTERS.sub(" ", text)
    for word in _WORD.findall(text):
        for part in word.split("|"):
            bare = part.strip(_TRIM)
            # GET is no word of asking.
            if bare.lower() in asking and not (len(bare) > 2 and bare.isupper() and not text.isupper()):
                runs.append([])
            else:
                runs[-1] += pieces(bare)
    return runs


def _enumerated(text: str, words: Iterable[str]) -> list[str]:
    """In lower case."""
    all_words = {word.lower() for word in words}
    pairs = (match.groups() for match in _ENUMERATION.finditer(text))
    return [word for pair in pairs for word in map(str.lower, pair) if word in all_words]


def _compiled(patterns: list[str]) -> list[Pattern]:
    compiled = []
    for one in dict.fromkeys(patterns[:_MOST_PATTERNS]):
        try:
            compiled.append(Pattern(one, ignore_case=True))
        except BadPattern:
            # RE2 does not accept it. Its words are searched for.
            continue
    return compiled


def _value(text: str) -> re.Pattern[str] | None:
    shapes = [shape for question, shape in _VALUES if re.search(rf"\b(?:{question})\b", text, re.IGNORECASE)]
    return re.compile("|".join(shapes)) if shapes else None


def _few(items: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))[:_MOST_OF_A_KIND]
