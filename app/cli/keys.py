"""`keys`: makes, lists, revokes and rotates the API keys of a file. Other lines of it stay as they are."""

import argparse
import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.files import only_writer, read_text
from app.http.edge.api_keys import (
    NAME,
    NAME_RULE,
    SHOWN_DIGITS,
    ApiKey,
    digest_of,
    is_blank,
    is_cut,
    parse_expiry,
    parse_key,
)
from domain.errors import ConfigError
from domain.handles import is_name
from machine.files import replace_text
from machine.tables import table

_SETTING = "SPILLGATE_API_KEYS_FILE"


def run(options: argparse.Namespace) -> int:
    """Raises ConfigError."""
    name = options.api_keys_file or os.environ.get(_SETTING)
    if not name:
        raise ConfigError(f"Name the file: --file FILE, or set {_SETTING}.")
    path = Path(name)
    if options.action == "new":
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with only_writer(path):
        return _run(path, options)


def _run(path: Path, options: argparse.Namespace) -> int:
    is_new = options.action == "new" and not path.exists()
    lines = [] if is_new else read_text(path, _SETTING, secret=True).splitlines(keepends=True)
    if options.action == "list":
        print(_table(lines))
        return 0
    if lines and is_cut(lines[-1]):
        raise ConfigError(
            f"{_SETTING}: the last line has no newline, so its end may be missing. Complete or "
            "delete the line."
        )
    if options.action == "new":
        _check_new(options.tenant, options.name, options.expires)
        key, token = _made(options.tenant, options.role, options.name, options.expires)
        if options.out is None:
            _write(path, [*lines, key])
            print(token)
        else:
            _write_out(options.out, token)
            _write(path, [*lines, key])
    elif options.action == "revoke":
        at, old = _line_of(lines, options.key, or_expired=True)
        _write(path, lines[:at] + lines[at + 1 :])
        print(f"revoked: {old.tenant} {old.name or old.digest[:SHOWN_DIGITS]}")
    else:
        at, old = _line_of(lines, options.key)
        try:
            ends = datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=options.hours)
        except (ValueError, OverflowError):
            raise ConfigError("--hours must be a number of hours, such as 24.") from None
        if old.expires is not None:
            ends = min(ends, datetime.fromtimestamp(old.expires, UTC))
        expiring = _line(old.tenant, old.digest, old.role, old.name, ends.strftime("%Y-%m-%dT%H:%MZ"))
        key, token = _made(old.tenant, old.role, old.name, "")
        _write(path, [*lines[:at], expiring, *lines[at + 1 :], key])
        print(token)
    return 0


def _check_new(tenant: str, name: str, expires: str) -> None:
    """Raises ConfigError, which names the argument at fault."""
    if not is_name(tenant):
        raise ConfigError(
            "keys new: TENANT has 1 to 128 letters, digits and ._:@=+~-, the first a letter, a digit or _."
        )
    if not NAME.fullmatch(name):
        raise ConfigError(f"keys new: --name: {NAME_RULE}.")
    try:
        ends = parse_expiry(expires)
    except ValueError as error:
        raise ConfigError(f"keys new: --expires: {error}.") from None
    if ends is not None and ends <= time.time():
        raise ConfigError("keys new: --expires has passed. Name a later time, in UTC.")


def _made(tenant: str, role: str, name: str, expires: str) -> tuple[str, str]:
    """A line of the file, and the key that it is for."""
    token = secrets.token_hex(32)
    return _line(tenant, digest_of(token), role, name, expires), token


def _line(tenant: str, digest: str, role: str, name: str, expires: str) -> str:
    return f"{tenant}:{digest}:{role}:{name}:{expires}".rstrip(":") + "\n"


def _parsed(line: str) -> ApiKey | None:
    if is_cut(line):
        return None
    try:
        return parse_key(line.strip())
    except ValueError:
        return None


def _line_of(lines: list[str], wanted: str, or_expired: bool = False) -> tuple[int, ApiKey]:
    """The line of the key of this name or digest. An expired key is found only with `or_expired`, and only if
    no other matches."""
    if not wanted:
        raise ConfigError(
            "NAME is empty. A key without a name is named by the digits that `keys list` shows."
        )
    now = time.time()
    named = [
        (number, key)
        for number, line in enumerate(lines)
        if (key := _parsed(line)) is not None
        and (key.name == wanted or (len(wanted) >= SHOWN_DIGITS and key.digest.startswith(wanted.lower())))
    ]
    in_force = [one for one in named if not one[1].has_expired(now)]
    named = in_force or (named if or_expired else [])
    if not named:
        kind = "key" if or_expired else "key in force"
        raise ConfigError(f"No {kind} has this name or digest. `spillgate keys list` shows them.")
    if len(named) > 1:
        raise ConfigError("Several keys have this name. Name one by the digits that `keys list` shows.")
    return named[0]


def _table(lines: list[str]) -> str:
    now, rows = time.time(), []
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            continue
        key = _parsed(line)
        if key is None:
            rows.append((str(number), "not in force: see docs/settings.md", "", "", "", ""))
            continue
        expires = ""
        if key.expires is not None:
            expires = f"{datetime.fromtimestamp(key.expires, UTC):%Y-%m-%d %H:%M}"
            expires += " (expired)" if key.has_expired(now) else ""
        rows.append((str(number), key.tenant, key.role, key.name, key.digest[:SHOWN_DIGITS], expires))
    return table(rows, ("line", "tenant", "role", "name", "digest", "expires"), indent="  ")


def _write_out(path: Path, token: str) -> None:
    """Raises ConfigError, also for a file that is there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
    except FileExistsError:
        raise ConfigError("keys new: --out: the file exists. Move it away, or name another file.") from None
    except OSError as error:
        raise ConfigError(f"keys new: --out cannot be written: {os.strerror(error.errno or 0)}.") from None


def _write(path: Path, lines: list[str]) -> None:
    """A service that reads the file sees the old one or the new one."""
    try:
        replace_text(path, "".join(lines), 0o600)
    except OSError as error:
        raise ConfigError(f"{_SETTING} cannot be written: {os.strerror(error.errno or 0)}.") from None
