"""tiktoken's own encoding without a network: its official ranks from the package that carries them."""

import base64
import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import tiktoken

_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def o200k_base() -> tiktoken.Encoding:
    spec = find_spec("bpe_openai")
    assert spec is not None
    assert spec.submodule_search_locations
    packed = Path(spec.submodule_search_locations[0]) / "data" / "o200k_base.tiktoken.gz"
    data = gzip.decompress(packed.read_bytes())
    assert hashlib.sha256(data).hexdigest() == _SHA256
    ranks = {
        base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())
    }
    return tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
