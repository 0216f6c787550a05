"""A disk that loses power: every call is recorded, and what was not synced may or may not have survived."""

import itertools
import os
import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.disk.syscalls import Files

TOP = 0  # the number of the root directory; other directories and files are numbered as they are made


@dataclass
class Disk:
    """Names and contents, as they are and as they are known to be on the medium."""

    names: dict[int, dict[str, int]] = field(default_factory=lambda: {TOP: {}})
    synced_names: dict[int, dict[str, int]] = field(default_factory=lambda: {TOP: {}})
    contents: dict[int, bytes] = field(default_factory=dict)
    synced: dict[int, tuple[bytes, bool]] = field(default_factory=dict)  # with: its times too


class RecordingFiles(Files):
    """Does the real thing and writes down what it did, by inode."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, ...]] = []
        # A file may get the inode of one that was just replaced: each is a file of its own here.
        self._numbers: dict[int, int] = {}
        self._next = itertools.count(1 << 40)

    def answered(self, name: str) -> None:
        self.done.append(("answered", name))

    def make_dir(self, name: str, parent: int) -> None:
        super().make_dir(name, parent)
        self.done.append(
            ("make_dir", self._number(parent), name, self._new(os.stat(name, dir_fd=parent).st_ino))
        )

    def create(self, name: str, parent: int) -> int:
        fd = super().create(name, parent)
        self.done.append(("create", self._number(parent), name, self._new(os.fstat(fd).st_ino)))
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        size = super().write(fd, data)
        self.done.append(("write", self._number(fd), bytes(data[:size])))
        return size

    def start_write_back(self, fd: int) -> None:
        super().start_write_back(fd)
        self.done.append(("write_back", self._number(fd)))

    def sync_data(self, fd: int) -> None:
        super().sync_data(fd)
        self.done.append(("sync", self._number(fd), False))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        self.done.append(("sync_dir", self._number(fd)) if is_directory else ("sync", self._number(fd), True))

    def rename(self, name: str, parent: int, new_name: str, new_parent: int) -> None:
        super().rename(name, parent, new_name, new_parent)
        self.done.append(("rename", self._number(parent), name, self._number(new_parent), new_name))

    def _new(self, inode: int) -> int:
        self._numbers[inode] = next(self._next)
        return self._numbers[inode]

    def _number(self, fd: int) -> int:
        inode = os.fstat(fd).st_ino
        return self._numbers.get(inode, inode)


def disks(done: list[tuple[Any, ...]], root: int) -> Iterator[tuple[Disk, list[str]]]:
    """The disk after each call, and what had been answered as kept by then."""
    disk = Disk({root: {}}, {root: {}})
    answered: list[str] = []
    for what, *args in done:
        match what:
            case "answered":
                answered.append(args[0])
            case "make_dir" | "create":
                parent, name, inode = args
                disk.names[parent][name] = inode
                if what == "make_dir":
                    disk.names[inode], disk.synced_names[inode] = {}, {}
                else:
                    disk.contents[inode], disk.synced[inode] = b"", (b"", False)
            case "write":
                disk.contents[args[0]] += args[1]
            case "sync":
                disk.synced[args[0]] = (disk.contents[args[0]], args[1])
            case "sync_dir":
                disk.synced_names[args[0]] = dict(disk.names[args[0]])
            case "rename":
                parent, name, new_parent, new_name = args
                disk.names[new_parent][new_name] = disk.names[parent].pop(name)
        yield disk, answered


def survive(disk: Disk, inode: int, path: Path, luck: str, used_at: int, dice: random.Random) -> None:
    """Writes to `path` what is left. `luck`: "none" of what was not synced, all its
    names but its contents "blank", or "mixed"."""
    names, synced = disk.names[inode], disk.synced_names[inode]
    for name in {**names, **synced}:
        there, was_there = names.get(name), synced.get(name)
        take_new = luck == "blank" or (luck == "mixed" and dice.random() < 0.5)
        child = there if take_new else was_there
        if child is None:
            continue
        if child in disk.names:
            (path / name).mkdir()
            survive(disk, child, path / name, luck, used_at, dice)
        else:
            content, has_times = disk.synced[child]
            whole = disk.contents[child]
            if luck != "none" and content != whole:
                # The size survived, the blocks did not; or a part, or all of it.
                blank, part = bytes(len(whole)), whole[: len(whole) // 2]
                content = blank if luck == "blank" else dice.choice((content, blank, part, whole))
            (path / name).write_bytes(content)
            os.utime(path / name, ns=(used_at, used_at) if has_times else (0, 0))
