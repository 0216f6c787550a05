"""The words with which a question asks for a count, a sum, an extreme or groups, or for a number of rows."""

import re


def words_of(pattern: str) -> re.Pattern[str]:
    """In any letter case."""
    return re.compile(pattern, re.IGNORECASE)


COUNT = words_of(
    r"\b(?:how many|number of|counts?|tally|frequen\w+|wie ?viele?|anzahl|häufig\w*|cuánt[ao]s|número de"
    r"|combien|nombre de|quant[ao]s|número|quant[ei]|numero di)\b|多少|几个|幾個|数量|いくつ|何件|何個|몇"
)
EXTENT = words_of(
    r"\b(?:how many|number of|count)\s(?:the\s|all\s)?"
    r"(?:rows?|lines?|records?|entries|items|elements|objects|columns?|keys)\b"
)
SUM = words_of(
    r"\b(?:sum|sums|summed|totals?|altogether|summe|insgesamt|gesamt\w*|suma|somme|soma|somma|totales?|totale|totaux)\b"
    r"|总和|总计|总额|总共|合计|合計|합계"
)
MEAN = words_of(
    r"\b(?:averages?|avg|mean|durchschnitt\w*|mittel\w*|promedio|media|moyenne|média)\b|平均|평균"
)
MOST = words_of(
    r"\b(?:most|maximum|max|highest|largest|biggest|greatest|longest|slowest|newest|heaviest|tallest|richest"
    r"|expensive|priciest|dearest|oldest|top|best|worst|häufigste\w*|meiste\w*|höchste\w*|größte\w*|teuerste\w*|längste\w*"
    r"|langsamste\w*|máxim[ao]s?|mayor(?:es)?|más|plus|maximale?|maior(?:es)?|mais|massim[ao]|maggiore|più)\b"
    r"|最多|最高|最大|最贵|最貴|最长|最長|最慢|最も|가장"
)
LEAST = words_of(
    r"\b(?:least|minimum|min|lowest|smallest|shortest|fewest|fastest|cheapest|lightest|youngest|wenigste\w*|niedrigste\w*"
    r"|kleinste\w*|billigste\w*|günstigste\w*|kürzeste\w*|schnellste\w*|mínim[ao]s?|menor(?:es)?|menos|moins|minimale?"
    r"|minim[ao]|meno)\b|最少|最低|最小|最便宜|最短|最快"
)
GROUP = words_of(
    r"\b(?:by|per|for each|for every|in each|of each|each|grouped by|group by|pro|je|nach|por|cada|par|chaque"
    r"|per ogni|ogni)\b|每个|每個|每|各|按|ごと|별"
)
DISTINCT = words_of(
    r"\b(?:distinct|unique|different|verschiedene?n?|distint[ao]s|diferentes|différente?s|divers[ie])\b|不同"
)
_NEWEST = words_of(r"\b(?:latest|last|newest|most recent|first|oldest|earliest)\b")
_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty
"""
_NUMBERS = {word: number for number, word in enumerate(_NUMBER_WORDS.split(), 2)}
_AS_MANY = words_of(
    r"(?:\A\W*|\b(?:which|what|top|bottom|the|list|show|me|name|find|get|are|first|last|largest|highest)\s+)"
    rf"(\d{{1,2}}|{'|'.join(_NUMBERS)})\s+(?=[^\W\d_]{{2}})"
    r"(?!(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?|percent)\b)"
)
"""A number of rows, as in `the ten largest files` and `which three requests were the slowest`."""


def rows_asked(text: str) -> re.Match[str] | None:
    """The number of rows that a question for extremes or the newest asks for; the group 1 is the number."""
    is_of_extremes = any(kind.search(text) for kind in (MOST, LEAST, _NEWEST))
    return _AS_MANY.search(text) if is_of_extremes else None


def as_number(word: str) -> int:
    return _NUMBERS.get(word.lower()) or int(word)


_MONTH_NAMES = """
january february march april may june july august september october november december
"""
MONTHS = _MONTH_NAMES.split()

_OTHERS = words_of(
    r"number|total(?:ed|ing)?|group(?:s|ed)?|sort(?:ed)?|rank(?:ed|ing)?|aggregate[ds]?|summar[iy]\w*"
    r"|often|frequently|common|commonly"
)


def is_of_asking(word: str) -> bool:
    """True for a word that asks for a value, such as `largest`, and need not occur in the data."""
    kinds = (COUNT, SUM, MEAN, MOST, LEAST, GROUP, DISTINCT, _OTHERS)
    return any(kind.fullmatch(word) for kind in kinds)
