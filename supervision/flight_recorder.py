"""The flight recorder: what runs just now, in a small file mapping that outlives a hard death of the process.

Whoever runs foreign code writes a slot before it and clears it after. Nothing is synced: the pages belong to the
kernel, so ``kill -9``, ``os._exit`` and the out-of-memory killer leave them as they were; only the death of the machine
takes them, and then the id of the boot says so.

The file is a header of 128 bytes and slots of 128 bytes, all little-endian (``_HEADER``, ``_SLOT``). Slots carry
numbers and a label that mean something to their owner alone.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: Name of the file in the directory that it belongs to; it is there while a process works, and after a hard death.
FILE_NAME = "everact.flight"

_MAGIC = b"EVFLIGHT"
_VERSION = 1
#: Magic, version, bytes of a slot, excused, then who writes: boot, process id, its start, this life, owner.
_HEADER = struct.Struct("<8sHHB3x36sIQ16s32s")
_HEADER_SIZE = 128
_EXCUSED_AT = 12
#: State, kind, length of the label, then three numbers and the label.
_SLOT = struct.Struct("<BBB5xQQQ96s")
#: Writes all but the label into ``FlightRecorder.map`` at a slot; of no label, the length must be 0.
write_slot = struct.Struct("<BBB5xQQQ").pack_into
_SLOT_SIZE = _SLOT.size
LABEL_SIZE = 96

#: States of a slot: unused; begun, but its code does not run just now; its code runs.
FREE, BEGUN, RUNNING = 0, 1, 2


class Slot(NamedTuple):
    """What a slot said when it was read.

    Attributes:
        is_running: Foreign code ran there; otherwise it had begun and waited.
        kind: A small number of the owner's.
        key: Three more.
        position: See above.
        number: See above.
        label: At most ``LABEL_SIZE`` bytes.
    """

    is_running: bool
    kind: int
    key: int
    position: int
    number: int
    label: bytes


class Flight(NamedTuple):
    """What a process left behind.

    Attributes:
        life: Sixteen random bytes that name the life of that process.
        same_boot: The machine has not started anew since.
        excused: Its death was asked for (``excuse``).
        slots: Those in use when it died.
    """

    life: bytes
    same_boot: bool
    excused: bool
    slots: tuple[Slot, ...]


def boot_id() -> str:
    """What names this start of the machine; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _process_start() -> int:
    """When this process started, in ticks since the boot; 0 where the system does not say."""
    try:
        # The second field is the program's name in brackets and may hold anything; start time is the 22nd.
        return int(Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def label_of(text: str) -> bytes:
    """A text as a label; a long one is cut."""
    return text.encode("utf-8", "replace")[:LABEL_SIZE]


def read_flight(directory: str | os.PathLike[str], owner: str) -> Flight | None:
    """What the last process of this owner left behind.

    Args:
        directory: Where the recorder's file is.
        owner: Up to 32 characters that name what the file belongs to; a file of another owner says nothing.

    Returns:
        None when it ended in an orderly way, or the file cannot be understood.
    """
    try:
        data = Path(directory, FILE_NAME).read_bytes()
    except OSError:
        return None
    if len(data) < _HEADER_SIZE:
        return None
    magic, version, size, excused, boot, _pid, _started, life, whose = _HEADER.unpack_from(data)
    if (magic, version, size) != (_MAGIC, _VERSION, _SLOT_SIZE) or whose != owner.encode():
        return None
    slots = []
    for offset in range(_HEADER_SIZE, len(data) - _SLOT_SIZE + 1, _SLOT_SIZE):
        state, kind, length, key, position, number, label = _SLOT.unpack_from(data, offset)
        if state in (BEGUN, RUNNING):
            slots.append(Slot(state == RUNNING, kind, key, position, number, label[:length]))
    return Flight(
        life, boot.rstrip(b"\0").decode("ascii", "replace") == boot_id(), bool(excused), tuple(slots)
    )


def excuse(directory: str | os.PathLike[str]) -> bool:
    """Note that the process which writes there is killed on purpose: its death counts against nobody.

    Returns:
        Whether there is a recorder's file.
    """
    try:
        with Path(directory, FILE_NAME).open("r+b") as file:
            file.seek(_EXCUSED_AT)
            file.write(b"\1")
    except OSError:
        return False
    return True


class FlightRecorder:
    """Slots in a file mapping, or in memory only when there is no file.

    ``take``, ``free``, ``close`` and ``forget`` belong to one thread; the writes to a slot to whoever has it.

    Attributes:
        map: The memory with the slots; another object after ``keep``, ``take``, ``close`` and ``forget``. The first
            byte of a slot is its state, which owners write here: its code runs (again), waits or has ended (BEGUN).
    """

    def __init__(self, slots: int) -> None:
        """Begin in memory.

        Args:
            slots: How many there are at first.
        """
        self._path: Path | None = None
        self._slots = slots
        self._free = _offsets(0, slots)
        self.map = mmap.mmap(-1, _HEADER_SIZE + slots * _SLOT_SIZE)

    @property
    def is_kept(self) -> bool:
        """Whether the slots are in a file."""
        return self._path is not None

    @property
    def is_full(self) -> bool:
        """Whether the next ``take`` needs more room."""
        return not self._free

    def keep(self, directory: str | os.PathLike[str], owner: str) -> None:
        """Write to a file from now on, in place of what the last process left; before any slot is taken.

        Raises:
            OSError: The file cannot be made, or there is no room for it. The slots stay in memory.
        """
        path = Path(directory, FILE_NAME)
        new = path.with_name(FILE_NAME + ".new")
        size = _HEADER_SIZE + self._slots * _SLOT_SIZE
        header = _HEADER.pack(
            _MAGIC, _VERSION, _SLOT_SIZE, 0, boot_id().encode(), os.getpid(), _process_start(), os.urandom(16),
            owner.encode(),
        )  # fmt: skip
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)
            _write(fd, header.ljust(size, b"\0"))
            mapped = mmap.mmap(fd, size)
            new.replace(path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        finally:
            os.close(fd)
        self.map.close()
        self.map = mapped
        self._path = path

    # --- slots

    def take(self) -> int:
        """Reserve a slot; nothing is written yet.

        Returns:
            Its offset, for the writes; -1 when there is none left and no room for more.
        """
        return self._free.pop() if self._free or self._grow() else -1

    def free(self, slot: int) -> None:
        """Give a slot back."""
        self.map[slot] = FREE
        self._free.append(slot)

    def run(  # noqa: PLR0917  (as ``write_slot``)
        self, slot: int, kind: int, key: int, position: int = 0, number: int = 0, label: bytes = b""
    ) -> None:
        """Foreign code is about to run there; ``write_slot`` is the same without a label."""
        _SLOT.pack_into(self.map, slot, RUNNING, kind, len(label), key, position, number, label)

    # --- the end

    def close(self) -> None:
        """An orderly end: the file goes, and nothing is held against anybody."""
        path, self._path = self._path, None
        if path is not None:
            with suppress(OSError):
                path.unlink()
        self._to_memory()

    def forget(self) -> None:
        """In a forked child: write to memory of its own from now on, the file is the parent's."""
        self._path = None
        self._to_memory()

    def _to_memory(self) -> None:
        # Not closed: a thread that nobody waits for may be about to write there.
        self.map = mmap.mmap(-1, len(self.map))

    def _grow(self) -> bool:
        """Make room for as many slots again."""
        more = self._slots
        size = _HEADER_SIZE + 2 * more * _SLOT_SIZE
        if self._path is not None:
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                return False
            try:
                # Real blocks: a hole that cannot be filled on a full disk would kill this process with SIGBUS.
                os.lseek(fd, len(self.map), os.SEEK_SET)
                _write(fd, bytes(size - len(self.map)))
                mapped = mmap.mmap(fd, size)
            except (OSError, ValueError):
                return False
            finally:
                os.close(fd)
        else:
            mapped = mmap.mmap(-1, size)
            mapped[: len(self.map)] = self.map[:]
        # The old mapping is of the same pages; it goes once no thread is about to write there.
        self.map = mapped
        self._slots += more
        self._free += _offsets(more, self._slots)
        return True


def _offsets(first: int, end: int) -> list[int]:
    """Where slots are, the first one last."""
    return [_HEADER_SIZE + number * _SLOT_SIZE for number in range(end - 1, first - 1, -1)]


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
