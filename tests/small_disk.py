"""A real file system that is soon full."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL_DISK_BYTES = 8 << 20


EXT4_BYTES = 12 << 20
"""Results of 13 KB and their entries fill it. What is left is then less than the -wal file of the ledger, but
for the room that is kept free."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of `SMALL_DISK_BYTES`. Skips the test where mounting is not allowed."""
    yield from _mounted(tmp_path / "small", ["-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs"])


@pytest.fixture
def small_ext4(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of `EXT4_BYTES` in a file. Skips the test where mounting is not allowed."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(EXT4_BYTES)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    yield from _mounted(tmp_path / "ext4", ["-t", "ext4", "-o", "loop", str(image)])


def _mounted(place: Path, what: list[str]) -> Iterator[Path]:
    place.mkdir()
    mounted = subprocess.run(["mount", *what, str(place)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"{what[1]} cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
