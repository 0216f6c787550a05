"""Secrets are found wherever a text is cut, and masks stand for them in whatever part is read."""

import json
import random
import re
import string
import tracemalloc
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import product

import pytest

from content.redaction import allowance, known, search
from content.redaction.detector import Detector, checked
from content.redaction.masks import Masked, masks_in
from content.redaction.search import SecretSearch, masks_of
from content.redaction.spans import SecretSpan
from domain.errors import BadPattern
from tests.counts import count
from tests.made_secrets import Made, is_found, made

pytestmark = pytest.mark.anyio

KEY = b"k" * 32
TOKEN = next(made()).secret.encode()


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector({"ticket": "TICKET-([0-9]{6})"}, secrets=True)


def shown(detector: Detector, data: bytes, key: bytes = KEY) -> bytes:
    return Masked(masks_of(detector, data), len(data), key).apply(data, 0)


def test_secrets_of_all_kinds_are_found(detector: Detector) -> None:
    missed = [one for one in made() if not is_found(one, detector)]
    assert not missed


@pytest.mark.parametrize(
    "line",
    [
        'password = "correcthorsebattery"',
        "password = os.environ['DB_PASSWORD']",
        "api_key: ${API_KEY_FROM_THE_VAULT}",
        "def reset_password(user_id: int, token: str) -> None:",
        "commit 3f129828aa0d1c2b9e8f7a6b5c4d3e2f1a0b9c8d",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "AKIA is the prefix of a key id",
        "password: required",
        "password: ${DB_PASSWORD_2X}",
        "password = <your-Password-1>",
        "password = get_password(Request1)",
        "password: str = Field(min_length=8)",
        "password=settings.dbPassword2, user=name",
        "hasher: password = Pbkdf2PasswordHasher",
        "<label for='password'>Password1234</label>",
        "token: string",
        "secret: true",
        "token: 123e4567-e89b-12d3-a456-426614174000",
        "secret: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        'next_page_token: "CAUQAAxyz12345678901234567890AB"',
        "token = TokenStore.readFirst2Tokens(name)",
        "Authorization: Bearer <your-token>",
        "Authorization: Bearer YOUR_API_TOKEN_HERE",
        'WWW-Authenticate: Basic realm="Access to Area51"',
    ],
)
def test_what_looks_like_a_secret_and_is_none_stays(detector: Detector, line: str) -> None:
    assert shown(detector, line.encode()) == line.encode()


@pytest.mark.parametrize(
    "line",
    [
        "DB_PASSWORD={CorrectHorse42!}",
        "password: {Winter2026!}",
        "password: {SuperSecret1!}",
        "POSTGRES_PASSWORD={hunter2Xyz!9}",
        "postgres(user=app, password={hunter2Xyz!9}, port=1)",
        '"password": "{SuperSecret1!}"',
        r'"password":"{aB3$\"dE5fG7hI9}"',
        "<db:password>{hunter2Xyz!9aB}</db:password>",
        "Authorization: Basic {dXNlcjpwYXNzd29yZDEyMyE=}",
        "curl -H 'Authorization: Bearer {9f8aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3}'",
        "token: {9f8aB3dE5fG7hI9jK1lM3nO5}",
        "JWT_SECRET={9f8aB3dE5fG7hI9jK1lM3nO5}",
    ],
)
def test_what_is_named_a_secret_and_looks_like_one_is_masked(detector: Detector, line: str) -> None:
    before, secret, after = line.replace("}", "{").split("{")
    text = f"first\n{before}{secret}{after}\nlast".encode()
    start = len(f"first\n{before}")
    assert [one[:2] for one in detector.find(text)] == [(start, start + len(secret))]


BEFORE = ("x_", "AWS_", "x", "9", "x-", "%20", "é", "/", "key=", ":", "@", "(", "<b>", "|", "**")
AFTER = (",", ")", "]", "}", "&b=1", "</b>", "|", "**", ". ", ".\n", ": no", "#", "?", "!", "…", "\\n", "@h")
BESIDE_NOTHING = {"aws_secret_access_key", "url_password", "password", "api_key", "private_key"}
"""These are known by what stands beside them."""


@pytest.mark.parametrize(
    "one", [one for one in made(1) if one.kind not in BESIDE_NOTHING], ids=lambda one: one.kind
)
def test_a_known_secret_is_found_whatever_touches_it(detector: Detector, one: Made) -> None:
    missed = []
    touching = [*((one, "") for one in BEFORE), *(("", one) for one in AFTER)]
    for first, (before, after) in product(("first ", ""), touching):
        text = f"{first}{before}{one.secret}{after} last"
        start = len(f"{first}{before}".encode())
        spans = detector.find(text.encode())
        if not any(found.start <= start and found.end >= start + len(one.secret) for found in spans):
            missed.append((before, after))
    # What begins with letters alone is no beginning behind a letter or digit: base64 has it by chance.
    expected = [("x", ""), ("9", "")] * 2 if one.kind in ("google", "jwt") else []
    assert missed == expected


def test_touched_secrets_are_found_where_they_are_whatever_is_between(detector: Detector) -> None:
    chance = random.Random(8)
    kinds = ("github_token", "stripe", "google", "npm", "digitalocean", "sendgrid", "twilio")
    secrets = [one.secret for one in made(3) if one.kind in kinds]
    for _ in range(60):
        text, expected = "", []
        for _ in range(chance.randrange(1, 12)):
            text += chance.choice(("", "ghp_ ", "sk_live_ ", "AIza, ")) + "word " * chance.choice(
                (0, 3, 190, 220, 700)
            )
            text += chance.choice((" ", ",", "(", "é", "key=", "\n", ". "))
            secret = chance.choice(secrets)
            expected.append((len(text.encode()), len(text.encode()) + len(secret)))
            text += (
                secret
                + chance.choice((",", ")", "&a=1", "<", " ", "\n", "é"))
                + "x" * chance.choice((0, 1200))
            )
        assert [one[:2] for one in detector.find(text.encode())] == expected


def test_a_key_id_behind_a_word_character_is_masked_alone(detector: Detector) -> None:
    key_id = "AKIAQ3EGUSA7XXZ2F5N4"
    for before, after in product(("x_", "x", "9", "", "A"), ("", "_x", "x", "1", ",")):
        text = f"{before}{key_id}{after}".encode()
        assert detector.find(text) == [SecretSpan(len(before), len(before) + 20, "aws_access_key_id")]
    for text in (f"{key_id}A", f"{key_id[:-1]}", key_id.lower()):
        assert detector.find(text.encode()) == []


def test_what_begins_with_a_text_of_its_own_is_known_to_begin_so() -> None:
    """A new release of the library may have rules of a form that is not recognised."""
    known.load_rules()
    begins = re.compile(r"(?:\(\?i\))?\\b\(*(?:\(\?:)?\w\w")
    rules = known._library().rules
    patterns = {
        rule["id"]: rules.detail(rule["id"])["pattern"] for rule in rules.metadata() if rule["visible"]
    }
    unknown = {id for id, one in patterns.items() if begins.match(one) and not known._BEGINS.match(one)}
    assert unknown == {
        "betterleaks.aws-access-token",  # A pattern of the product's own.
        "betterleaks.azure-storage-account-key",
        "betterleaks.vault-service-token",  # In _MORE_BEGINNINGS.
    }


ESCAPED = "".join(f"\\u{ord(one):04x}" for one in TOKEN.decode())
WRITTEN = {
    "as it is": TOKEN,
    "with colours": b"\x1b[01;31m\x1b[Kghp_\x1b[m\x1b[K" + TOKEN[4:],
    "an escape in front": b"\\u0067" + TOKEN[1:],
    "all escapes": ESCAPED.encode(),
    "a line of JSON": b"\\n" + TOKEN + b"\\n",
    "JSON in JSON": ESCAPED.replace("\\", "\\\\").encode(),
    "colours in JSON": b"ghp_\\u001b[m" + TOKEN[4:],
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_secret_is_found_however_it_is_written_and_has_one_number(
    detector: Detector, written: bytes
) -> None:
    mask = shown(detector, TOKEN)
    for before, after in ((b"see ", b" there"), (b'C:\\dir {"a":"\xc3\xa9\\u00e9 ', b'\\\\ x"}')):
        text = shown(detector, before + written + after)
        assert text.count(mask) == 1
        assert text.startswith(before[:-1])
        assert text.endswith(after)
        assert len(text) <= len(before + mask + after) + 20


@pytest.mark.parametrize("depth", range(4))
def test_a_password_in_nested_json_is_masked_and_the_json_stays_whole(detector: Detector, depth: int) -> None:
    text = json.dumps({"name": 'a "b" \\', "password": "hunter2/Xyz!9"}).replace("/", "\\/")
    for _ in range(depth):
        text = json.dumps(text)
    value = shown(detector, text.encode()).decode()
    for _ in range(depth):
        value = json.loads(value)
    masked = json.loads(value)
    assert masked["name"] == 'a "b" \\'
    assert masks_in(masked["password"]) == {"password": 1}
    assert masked["password"].encode() == shown(detector, b"password = hunter2/Xyz!9").split(b" = ")[1]


@pytest.mark.parametrize("before", ["TOKEN=", "Authorization: Bearer ", "api_key: "])
def test_a_secret_of_a_known_kind_is_called_by_it_beside_a_generic_name(
    detector: Detector, before: str
) -> None:
    found = detector.find(before.encode() + TOKEN)
    assert found == [SecretSpan(len(before), len(before) + len(TOKEN), "github_token")]


def test_a_pattern_masks_its_group_and_one_without_a_group_all() -> None:
    text = b"TICKET-123456 and X-77"
    both = Detector({"ticket": "TICKET-([0-9]{6})", "x": "X-[0-9]+"}, secrets=False)
    assert both.find(text) == [SecretSpan(7, 13, "ticket"), SecretSpan(18, 22, "x")]


@pytest.mark.parametrize("pattern", ["(", "a*", "(?=a)b"])
def test_a_pattern_that_cannot_run_or_matches_nothing_at_all_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        checked(pattern)


def test_a_value_has_one_number_under_a_key_and_another_value_another(detector: Detector) -> None:
    one, two = (secret.secret.encode() for secret in list(made(2))[:2])
    first, second, again = shown(detector, b"%b\n%b\n%b" % (one, two, one)).split(b"\n")
    assert first == again != second
    assert shown(detector, one) == first
    assert shown(detector, one, b"other key") != first
    assert masks_in(first.decode()) == {"github_token": 1}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('password = "{0}"\nlogged in with {0}\n', ["aB3xY9kLmN2pQ7rS5tU1"]),
        ('{{\\"password\\":\\"{0}\\"}} for {0}', ["aB3xY9kLmN2pQ7rS5tU1"]),
        ('"password":"{0}" for {1}\\n', ["aB3xY9k/mN2pQ7rS5tU1", "aB3xY9k\\/mN2pQ7rS5tU1"]),
        ('"password":"{1}" for {0}', ["aB3xY9k/mN2pQ7rS5tU1", "aB3xY9k\\/mN2pQ7rS5tU1"]),
        ('"password":"{0}" for {1}', ["aB3xY9kLmN2pQ7rS5tU1", "aB3xY9k\x1b[1mLmN2pQ7rS5tU1"]),
        ('"password":"{0}" for {1}\\\\n', ["aB3xY9kLmN2pQ7rS5tU1", "aB3xY9k\\\\u004cmN2pQ7rS5tU1"]),
    ],
)
def test_a_secret_that_was_recognised_by_its_name_is_masked_where_it_stands_alone(
    detector: Detector, text: str, values: list[str]
) -> None:
    left = shown(detector, text.format(*values).encode()).decode()
    assert sum((masks_in(left) or {}).values()) == 2
    assert not any(value in left for value in values)


def passwords(most: int, chance: random.Random | None = None) -> bytes:
    """A line with a password each."""
    chance = chance or random.Random(11)
    letters = string.ascii_letters + string.digits + "!%&*"
    values = ("".join(chance.choices(letters, k=18)) for _ in range(most))
    return "".join(f'user{number} password = "{value}"\n' for number, value in enumerate(values)).encode()


@pytest.mark.parametrize("most", [400, count(12_000, 24_000)])
def test_many_secrets_are_found_within_the_time_that_the_size_allows(detector: Detector, most: int) -> None:
    text = passwords(most)
    counts = masks_of(detector, text).counts
    assert counts.keys() == {"password"}
    assert counts["password"] > 0.97 * most


def test_secrets_that_begin_alike_are_found_in_that_time(detector: Detector) -> None:
    most = count(4000, 8000)
    chance = random.Random(3)
    letters = string.ascii_letters + string.digits
    begins = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0."
    text = "\n".join(begins + "".join(chance.choices(letters, k=43)) for _ in range(most)).encode()
    assert masks_of(detector, text).counts == {"jwt": most}


HOSTILE = {
    "a URL in many parts": ({}, b"mongodb://aaa:bbb@ccc.d,"),
    "many beginnings of a key": ({}, b'{"private_key": "-----BEGIN PRIVATE KEY-----'),
    "a pattern that looks to the end": ({"end": "a[^b]*b|c"}, b"ac"),
}


@pytest.mark.parametrize(("patterns", "piece"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_searched_in_time_is_masked_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, patterns: dict[str, str], piece: bytes
) -> None:
    monkeypatch.setattr(allowance, "SECONDS", 0.05)
    monkeypatch.setattr(allowance, "SECONDS_A_MIB", 0)
    found = Detector(patterns, secrets=not patterns)
    text = TOKEN + b"\n" + piece * (300_000 // len(piece)) + b"\n" + TOKEN
    masked = shown(found, text)
    assert masked.strip() == masked.split(b"\n")[0]
    assert masks_in(masked.decode()) == {"not_searched": 1}
    assert masked.count(b"\n") == text.count(b"\n")


def test_only_the_block_that_took_too_long_is_masked_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, detector: Detector
) -> None:
    mask = shown(detector, TOKEN)
    monkeypatch.setattr(search, "BLOCK", 100_000)
    monkeypatch.setattr(search, "MARGIN", 1000)
    monkeypatch.setattr(allowance, "SECONDS", 0)
    monkeypatch.setattr(allowance, "SECONDS_A_MIB", 1)
    plain, hostile = b"a line of words\n" * 10_000, b"mongodb://aaa:bbb@ccc.d," * 3000
    text = TOKEN + b"\n" + plain + hostile + plain + b"\n" + TOKEN
    masks = masks_of(detector, text)
    assert masks.counts["github_token"] == 2
    assert masks.counts["not_searched"] >= 1
    masked = Masked(masks, len(text), KEY).apply(text, 0)
    assert masked.startswith(mask + b"\na line of words\n")
    assert masked.endswith(b"a line of words\n\n" + mask)
    assert b"mongodb" not in masked


def test_a_short_search_that_takes_long_is_left_to_a_thread(detector: Detector) -> None:
    detector.find(b"")
    for text, is_done in ((b"a line\n" * 100, True), (passwords(350), False), (b"a" * 20_000, False)):
        one = SecretSearch(detector)
        one.hold(text)
        masks = one.finish_at_once()
        assert is_done or masks is None
        if masks is None:
            masks = one.finish()
        assert len(masks) == len(masks_of(detector, text))


def test_ascii_in_utf_16_is_searched(detector: Detector) -> None:
    """A text that a tool wrote in UTF-16 without a mark is UTF-8 with NULs."""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = f"see {TOKEN.decode()} there".encode(encoding)
        masked = shown(detector, text).replace(b"\0", b"")
        assert masked == b"see %b there" % shown(detector, TOKEN)


def test_escapes_take_little_memory(detector: Detector) -> None:
    text = b"\\" * search.BLOCK
    detector.find(b"")
    tracemalloc.start()
    try:
        assert detector.find(text + b"n " + TOKEN) == [
            SecretSpan(len(text) + 2, len(text) + 2 + len(TOKEN), "github_token")
        ]
        assert tracemalloc.get_traced_memory()[1] < 8 * len(text)
    finally:
        tracemalloc.stop()


def test_a_mask_keeps_the_lines_of_what_follows(detector: Detector) -> None:
    key = next(one.line for one in made() if one.kind == "private_key")
    text = f"above\n{key}\nbelow\n".encode()
    assert shown(detector, text).count(b"\n") == text.count(b"\n")


def test_masks_are_not_masked_again(detector: Detector) -> None:
    once = shown(detector, b"\n".join(one.line.encode() for one in made(1)))
    assert shown(detector, once) == once


def test_a_secret_is_found_wherever_chunks_end(detector: Detector) -> None:
    text = b"before\n%b\nbetween TICKET-654321\n%b\n%b\nafter" % (
        TOKEN,
        WRITTEN["an escape in front"],
        WRITTEN["with colours"],
    )
    whole = masks_of(detector, text)
    for cut in range(len(text) + 1):
        cut_up = SecretSearch(detector)
        cut_up.hold(text[:cut])
        cut_up.hold(text[cut:])
        masks = cut_up.finish()
        assert (masks.starts, masks.ends) == (whole.starts, whole.ends)
        masked = Masked(masks, len(text), KEY)
        assert masked.apply(text[:cut], 0) + masked.apply(text[cut:], cut) == masked.apply(text, 0)


@pytest.mark.parametrize("name", ["as it is", "an escape in front"])
def test_a_secret_is_found_wherever_a_block_ends(
    detector: Detector, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    written = WRITTEN[name]
    monkeypatch.setattr(search, "BLOCK", 200)
    monkeypatch.setattr(search, "MARGIN", 100)
    for before in range(420):
        text = b"." * before + b" " + written + b" " + b"." * 300
        masks = masks_of(detector, text)
        assert list(zip(masks.starts, masks.ends, strict=True)) == [(before + 1, before + 1 + len(written))]


def _reading(data: bytes, size: int) -> Callable[[int, int], AsyncIterator[bytes]]:
    async def read(start: int, end: int) -> AsyncIterator[bytes]:
        for at in range(start, min(end, len(data)), size):
            yield data[at : min(at + size, end)]

    return read


async def test_each_part_of_a_masked_body_is_that_part_of_the_whole(detector: Detector) -> None:
    text = b"%b, %b TICKET-654321" % (TOKEN, list(made(2))[1].secret.encode())
    masked = Masked(masks_of(detector, text), len(text), KEY)
    whole = masked.apply(text, 0)
    assert masked.size == len(whole)
    chance = random.Random(5)
    for start in range(len(whole) + 1):
        for end in range(start, len(whole) + 1, 3):
            read = partial(_reading(text, chance.randrange(1, 30)))
            assert b"".join([part async for part in masked.read(read, start, end)]) == whole[start:end]
