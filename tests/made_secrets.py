"""Secrets that look real, of 22 kinds, made from a seed. `python -m tests.made_secrets FILE.jsonl` counts how
many are found, the false alarms over recorded results, and what a search costs in processor time."""

import base64
import json
import random
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from content.redaction.detector import Detector

_ALNUM = string.ascii_letters + string.digits
_HEX, _CAPITALS = "0123456789abcdef", string.ascii_uppercase + string.digits
_URL, _BASE64 = _ALNUM + "-_", _ALNUM + "+/"
_PLACES = (
    "TOKEN={}",
    '  "token": "{}",',
    'export KEY="{}"',
    "Authorization: Bearer {}",
    "2026-11-20 08:12:01 INFO using {} for the request",
    "| {} |",
    "{}",
)


class Made(NamedTuple):
    """`line` is a text that has the `secret`."""

    kind: str
    secret: str
    line: str


def made(each: int = 10, seed: int = 37) -> Iterator[Made]:
    chance = random.Random(seed)
    for kind, make in _kinds(chance).items():
        for _ in range(each):
            value = make()
            if isinstance(value, str):
                yield Made(kind, value, chance.choice(_PLACES).format(value))
            else:
                before, secret, after = value
                yield Made(kind, secret, before + secret + after)


def _kinds(chance: random.Random) -> dict[str, Callable[[], str | tuple[str, str, str]]]:
    def some(count: int, of: str = _ALNUM) -> str:
        return "".join(chance.choice(of) for _ in range(count))

    def claims(**fields: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    def jwt() -> str:
        return f"{claims(alg='HS256', typ='JWT')}.{claims(sub=some(10), name=some(8))}.{some(43, _URL)}"

    def private_key() -> str:
        lines = "\n".join(some(64, _BASE64) for _ in range(12))
        return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"

    return {
        "github_token": lambda: "ghp_" + some(36),
        "github_fine_grained": lambda: f"github_pat_{some(22)}_{some(59)}",
        "gitlab_pat": lambda: "glpat-" + some(20),
        "aws_access_key_id": lambda: "AKIA" + some(16, string.ascii_uppercase + "234567"),
        "aws_secret_access_key": lambda: ("aws_secret_access_key = ", some(40, _BASE64), ""),
        "slack_bot_token": lambda: f"xoxb-{some(12, string.digits)}-{some(12, string.digits)}-{some(24)}",
        "slack_webhook_url": lambda: (
            f"https://hooks.slack.com/services/T{some(8, _CAPITALS)}/B{some(10, _CAPITALS)}/{some(24)}"
        ),
        "stripe": lambda: "sk_live_" + some(24),
        "openai": lambda: f"sk-proj-{some(74, _URL)}T3BlbkFJ{some(74, _URL)}",
        "anthropic": lambda: f"sk-ant-api03-{some(93, _URL)}AA",
        "google": lambda: "AIza" + some(35, _URL),
        "npm": lambda: "npm_" + some(36),
        "pypi": lambda: "pypi-AgEIcHlwaS5vcmc" + some(160, _URL),
        "sendgrid": lambda: f"SG.{some(22, _URL)}.{some(43, _URL)}",
        "twilio": lambda: "SK" + some(32, _HEX),
        "jwt": jwt,
        "private_key": private_key,
        "url_password": lambda: ("postgres://app:", some(20), "@db.example.internal:5432/app"),
        "huggingface": lambda: "hf_" + some(34, string.ascii_letters),
        "digitalocean": lambda: "dop_v1_" + some(64, _HEX),
        "password": lambda: ('password = "', some(18, _ALNUM + "!%&*"), '"'),
        "api_key": lambda: ('api_key: "', some(32), '"'),
    }


def is_found(one: Made, detector: Detector) -> bool:
    """Whether all of the secret is masked, in a text of several lines."""
    text = f"first line\n{one.line}\nlast line\n".encode()
    start = text.find(one.secret.encode())
    end = start + len(one.secret.encode())
    return any(span.start <= start and end <= span.end for span in detector.find(text))


def main(path: str) -> None:
    detector = Detector({}, secrets=True)
    secrets = list(made())
    missed = [one for one in secrets if not is_found(one, detector)]
    kinds = len({one.kind for one in secrets})
    print(f"found: {len(secrets) - len(missed)} of {len(secrets)} secrets of {kinds} kinds")
    print("missed:", dict(Counter(one.kind for one in missed)))
    texts = [json.loads(line)["text"].encode() for line in Path(path).read_text().split("\n") if line]
    began, alarms = time.process_time(), Counter[str]()
    for text in texts:
        alarms.update(span.kind for span in detector.find(text))
    spent, size = time.process_time() - began, sum(map(len, texts))
    print(f"false alarms in {len(texts)} results of {size:,} bytes: {dict(alarms)}")
    print(f"processor time: {spent / size * 1e8:.2f} ms for 100 KB")


if __name__ == "__main__":
    main(sys.argv[1])
