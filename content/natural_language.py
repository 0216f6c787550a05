"""The natural language of a text: by its script, for Latin letters by the commonest words."""

import re
from collections import Counter
from itertools import chain

_LOOKED_AT = 8 * 1024

_SCRIPTS = (
    ("Japanese", re.compile("[\u3041-\u30ff]")),
    ("Korean", re.compile("[\uac00-\ud7af]")),
    ("Chinese", re.compile("[\u3400-\u9fff]")),
    ("Russian", re.compile("[\u0400-\u04ff]")),
    ("Greek", re.compile("[\u0370-\u03ff]")),
    ("Hebrew", re.compile("[\u0590-\u05ff]")),
    ("Arabic", re.compile("[\u0600-\u06ff]")),
    ("Hindi", re.compile("[\u0900-\u097f]")),
    ("Thai", re.compile("[\u0e00-\u0e7f]")),
)
_BEYOND_ASCII = re.compile("[^\x00-\x7f]+")
# Japanese is written with Chinese characters too: a tenth of kana is enough.
_KANA_SHARE = 0.1
# A character of Chinese says as much as three or four letters.
_SHARE = 0.2

_WORD = re.compile(r"[^\W\d_]+")
_LETTERS_ALONE = bytes(ord(chr(code).lower()) if chr(code).isalpha() else 32 for code in range(128)) * 2
"""The letters of an ASCII text in lower case, with spaces for all else."""

_COMMON = {
    "English": "the of and to in is that for it with as was on are by this be from or have not at which you",
    "German": "der die und das nicht mit ist ein eine auf für von dem sich auch werden den im zu sind wird",
    "French": "le la les des et une dans est pour que qui sur pas du avec sont par cette plus ce au aux vous",
    "Spanish": "el la los las y una que en por para con del se es como más este esta su sus al pero está",
    "Portuguese": "o os as e uma que em por para com não do da dos das se é como mais este esta seu ao são",
    "Italian": "il lo gli e una che di per con non del della dei si è come più questo questa nel alla sono",
    "Dutch": "de het een en van niet met is op te voor dat die zijn aan ook worden bij door naar wordt deze",
    "Polish": "i w nie na się z że do jest to jak o po co dla od przez lub są ale oraz jego który",
    "Turkish": "ve bir bu için ile de da olarak daha çok gibi ancak olan sonra kadar en ne veya değil",
    "Swedish": "och att det som en är av för på med till den inte har om ett men var jag kan från eller",
}
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _COMMON.items():
    for _word in _words.split():
        _LANGUAGES_OF.setdefault(_word, []).append(_language)

# Fewer common words say nothing, nor do a few that are repeated, such as `x y` on each line; the winner
# leads by a half.
_LEAST_WORDS = 12
_LEAST_DIFFERENT = 4
_LEAST_SHARE = 0.12
_LEAD = 1.5


def language_of_text(text: str) -> str:
    """Returns the English name of the language of most of the text; "" for English and for an unknown
    language, as in code and data. Reads 8 Ki characters."""
    text = text[:_LOOKED_AT]
    words = _words_of(text)
    if not text.isascii():
        beyond = "".join(_BEYOND_ASCII.findall(text))
        letters = max(1, sum(map(len, words)))
        for name, script in _SCRIPTS if len(beyond) > _KANA_SHARE * letters else ():
            least = _KANA_SHARE if name == "Japanese" else _SHARE
            if len(script.findall(beyond)) > least * letters:
                return name
    least_words = max(_LEAST_WORDS, _LEAST_SHARE * len(words))
    common = _common(words)
    if len(common) < least_words:
        return ""
    (first, most), (_, second) = [*_languages(common).most_common(2), ("", 0)][:2]
    if first == "English" or most < max(least_words, _LEAD * second):
        return ""
    return first if _languages(list(set(common)))[first] >= _LEAST_DIFFERENT else ""


def may_be_in(text: str, language: str) -> bool:
    """True if a short text, such as a question, may be in the language: it has its script, or as many of its
    common words as of any other language."""
    if language in dict(_SCRIPTS):
        return language_of_text(text) == language
    counts = _languages(_common(_words_of(text)))
    return 0 < counts[language] == max(counts.values())


def _words_of(text: str) -> list[str]:
    """In lower case."""
    if text.isascii():
        # A tenth of the time of the pattern.
        return text.encode().translate(_LETTERS_ALONE).decode().split()
    return [word.lower() for word in _WORD.findall(text)]


def _common(words: list[str]) -> list[str]:
    return list(filter(_LANGUAGES_OF.__contains__, words))


def _languages(common: list[str]) -> Counter[str]:
    """How many of the words are common in each language."""
    return Counter(chain.from_iterable(map(_LANGUAGES_OF.__getitem__, common)))
