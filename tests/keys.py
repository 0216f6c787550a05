"""Files of API keys, and what a caller sends who has one."""

import hashlib
from pathlib import Path


def key_file(path: Path, *lines: str) -> Path:
    """Each line is `tenant:key` and what else a line may say: the key itself in place of its digest."""
    written = ""
    for line in lines:
        tenant, key, *more = line.split(":")
        written += ":".join([tenant, hashlib.sha256(key.encode()).hexdigest(), *more]) + "\n"
    path.write_text(written)
    path.chmod(0o600)
    return path


def by(key: str, **more: str) -> dict[str, str]:
    """Headers."""
    return {"Authorization": f"Bearer {key}", **more}
