"""The pages of an LMDB data file, read without LMDB.

LMDB trusts its pages: one that is damaged ends a whole transaction with an error, and a page of zeros, as a lost write
leaves it, ends the process. Here each page is looked at before it is believed, and what is behind it is still found.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from .errors import JournalCorruptError

#: Page header: its own number, (padding), flags, lower and upper end of the free room.
_PAGE = struct.Struct("<QHHHH")
_BRANCH, _LEAF = 1, 2
#: Two more bits that a page in a file may have: it is dirty, or an old copy.
_KIND = 0x0F
#: Node header: low and high half of a size or a page number, flags or its third part, length of the key.
_NODE = struct.Struct("<HHHH")
_BIG_DATA, _SUB_DATABASE = 1, 2
_NUMBER = struct.Struct("<Q")
#: A database: (padding), flags, depth, pages of three kinds, rows, root page.
_DATABASE = struct.Struct("<IHHQQQQQ")
#: Where in a meta page the list of free pages, the database of databases, the last page and the transaction stand.
_META_FREE = _PAGE.size + 24
_META_MAIN = _META_FREE + _DATABASE.size
_META_LAST = _META_MAIN + _DATABASE.size
_META_END = struct.Struct("<QQ")
_META_PAGES = 2
_NO_PAGE = 2**64 - 1
#: Of a meta page: its kind, and magic and version behind the page header.
_META = 8
_SIGNATURE = struct.Struct("<II")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_SIZES = {1 << bits for bits in range(9, 17)}


def head_trouble(head: bytes, size: int) -> str:
    """What is wrong with the two pages from which all others are found; empty when nothing is.

    Args:
        head: The beginning of the data file, these pages at least.
        size: Of the data file, in bytes.
    """
    if len(head) < _META_FREE + 4:
        return f"it has only {size:,} bytes"
    (page_size,) = struct.unpack_from("<I", head, _META_FREE)
    metas = []
    for number in range(_META_PAGES):
        base = number * page_size if page_size in _PAGE_SIZES else 0
        if len(head) < base + _META_LAST + _META_END.size:
            return f"it ends inside of page {number}"
        if _SIGNATURE.unpack_from(head, base + _PAGE.size) != (_MAGIC, _VERSION):
            return f"page {number} does not begin as in a journal"
        if page_size not in _PAGE_SIZES:
            return f"page 0 says that pages have {page_size:,} bytes"
        if not _PAGE.unpack_from(head, base)[2] & _META:
            return f"page {number} is of the wrong kind"
        last, transaction = _META_END.unpack_from(head, base + _META_LAST)
        metas.append((transaction, last))
    pages = max(metas)[1] + 1
    if pages * page_size > size:
        return f"it should have {pages:,} pages of {page_size:,} bytes, and has {size:,} bytes"
    return ""


class Leaf(NamedTuple):
    """A page at the lowest level, or what cannot be read of the levels.

    Attributes:
        low: No key here is lower.
        high: All keys here are lower; None when there is no limit.
        rows: Its rows.
        damage: What is wrong, and then there are no rows.
    """

    low: bytes
    high: bytes | None
    rows: list[tuple[bytes, bytes]]
    damage: str = ""


class _Keys(NamedTuple):
    """Which part of a database is wanted; all of one whose keys are numbers in the order of this machine's bytes."""

    start: bytes = b""
    stop: bytes | None = None
    reverse: bool = False
    are_numbers: bool = False


class _Node(NamedTuple):
    """One row of a page: three numbers of its header, its key, and where in the file its data begins."""

    low: int
    high: int
    flags: int
    key: bytes
    at: int


class _Database(NamedTuple):
    """What is known of a database without looking into it."""

    padding: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    rows: int
    root: int

    @property
    def pages(self) -> int:
        return self.branch_pages + self.leaf_pages + self.overflow_pages


class DatabaseSize(NamedTuple):
    """How large a database is.

    Attributes:
        rows: Its rows.
        pages: Its pages of all kinds.
    """

    rows: int
    pages: int


class PageFile:
    """The databases in a data file as the newest transaction left them.

    The pages stay as they are only while somebody holds a read transaction of that number.

    Args:
        data: The file.
        page_size: In bytes.

    Attributes:
        page_size: In bytes.
        transaction: Number of the newest transaction.
    """

    def __init__(self, data: memoryview, page_size: int) -> None:
        self._data = data
        self.page_size = page_size
        metas = []
        for base in (0, page_size):
            last, transaction = _META_END.unpack_from(data, base + _META_LAST)
            free = _Database(*_DATABASE.unpack_from(data, base + _META_FREE))
            main = _Database(*_DATABASE.unpack_from(data, base + _META_MAIN))
            metas.append((transaction, last, free, main))
        self.transaction, self._last, self._free, self._main = max(metas)

    def leaves(
        self, name: bytes, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Leaf]:
        """Yield the leaf pages that may hold keys ``start <= key < stop``, in the order of the keys or backwards.

        Raises:
            JournalCorruptError: The file has no such database, or what says where it is is damaged.
        """
        yield from self._tree(self._database(name), _Keys(start, stop, reverse))

    def free_list(self) -> Iterator[Leaf]:
        """Yield the leaf pages of the list of free pages, which every commit needs and no table leads to."""
        yield from self._tree(self._free, _Keys(are_numbers=True))

    def size(self, name: bytes) -> DatabaseSize:
        """How large a database is, as it says itself.

        Raises:
            JournalCorruptError: The file has no such database, or what says where it is is damaged.
        """
        found = self._database(name)
        return DatabaseSize(found.rows, found.pages)

    @property
    def free_pages(self) -> int:
        """Pages in the file that hold nothing, and will be used again."""
        used: int = _META_PAGES + self._free.pages + self._main.pages
        for leaf in self._tree(self._main, _Keys()):
            databases = (value for _, value in leaf.rows if len(value) == _DATABASE.size)
            used += sum(int(_Database(*_DATABASE.unpack(value)).pages) for value in databases)
        total: int = self._last + 1
        return max(total - used, 0)

    def get(self, name: bytes, key: bytes) -> bytes | None:
        """The value of a key.

        Raises:
            JournalCorruptError: The page that would hold it is damaged.
        """
        leaf = next(self.leaves(name, key, key + b"\0"), None)
        if leaf is not None and leaf.damage:
            raise JournalCorruptError(leaf.damage)
        return None if leaf is None else dict(leaf.rows).get(key)

    def _database(self, name: bytes) -> _Database:
        leaf = next(self._tree(self._main, _Keys(name, name + b"\0")))
        found = dict(leaf.rows).get(name, b"")
        if len(found) != _DATABASE.size:
            raise JournalCorruptError(leaf.damage or f"the file has no database {name.decode()!r}")
        return _Database(*_DATABASE.unpack(found))

    def _tree(self, database: _Database, wanted: _Keys) -> Iterator[Leaf]:
        if database.root != _NO_PAGE:
            yield from self._below(database.root, database.depth, Leaf(b"", None, []), wanted)

    def _below(self, number: int, depth: int, within: Leaf, wanted: _Keys) -> Iterator[Leaf]:
        """The leaves of the tree under a page, whose keys are within these limits."""
        try:
            nodes = self._nodes(number, _LEAF if depth <= 1 else _BRANCH, wanted)
            if depth <= 1:
                yield within._replace(rows=[self._row(number, node) for node in nodes])
                return
        except (JournalCorruptError, struct.error) as error:
            yield within._replace(damage=f"page {number} is damaged: {error}")
            return
        # The first key of a branch stands for all that are lower.
        keys = [within.low, *(node.key for node in nodes[1:])]
        ends = [*keys[1:], within.high]
        first = max(bisect_right(keys, wanted.start) - 1, 0)
        last = len(keys) if wanted.stop is None else max(bisect_left(keys, wanted.stop), first + 1)
        places = range(first, last)
        for place in reversed(places) if wanted.reverse else places:
            node = nodes[place]
            child = node.low | node.high << 16 | node.flags << 32
            yield from self._below(child, depth - 1, Leaf(keys[place], ends[place], []), wanted)

    def damaged_head(self, name: bytes) -> str:
        """What is wrong with the head of one of a database's pages; empty when LMDB can go along all of them.

        Rows are not looked at, so it costs a moment for each page at the lowest level, which is read from the disk.

        Raises:
            JournalCorruptError: The file has no such database, or what says where it is is damaged.
        """
        found = self._database(name)
        return "" if found.root == _NO_PAGE else self._damaged_head(found.root, found.depth)

    def _damaged_head(self, number: int, depth: int) -> str:
        try:
            if depth <= 1:
                self._head(number, _LEAF)
                return ""
            nodes = self._nodes(number, _BRANCH, _Keys())
        except (JournalCorruptError, struct.error) as error:
            return f"page {number} is damaged: {error}"
        below = (
            self._damaged_head(node.low | node.high << 16 | node.flags << 32, depth - 1) for node in nodes
        )
        return next(filter(None, below), "")

    def _head(self, number: int, kind: int) -> tuple[int, int]:
        """Lower and upper end of the free room of a page."""
        base = number * self.page_size
        if not _META_PAGES <= number <= self._last or base + self.page_size > len(self._data):
            raise JournalCorruptError("it is outside of the file")
        own, _, flags, lower, upper = _PAGE.unpack_from(self._data, base)
        if own != number:
            raise JournalCorruptError(f"it says that it is page {own}")
        if flags & _KIND != kind:
            raise JournalCorruptError(f"its kind is {flags:#x}")
        if not _PAGE.size < lower <= upper <= self.page_size:
            raise JournalCorruptError("its free room is not inside of it")
        return lower, upper

    def _nodes(self, number: int, kind: int, wanted: _Keys) -> list[_Node]:
        """The rows of a page."""
        lower, upper = self._head(number, kind)
        base = number * self.page_size
        found: list[_Node] = []
        before = b""
        for (offset,) in struct.iter_unpack("<H", bytes(self._data[base + _PAGE.size : base + lower])):
            if not upper <= offset <= self.page_size - _NODE.size:
                raise JournalCorruptError("a row is outside of it")
            low, high, bits, length = _NODE.unpack_from(self._data, base + offset)
            data = offset + _NODE.size + length
            if data > self.page_size:
                raise JournalCorruptError("a key is outside of it")
            key = bytes(self._data[base + data - length : base + data])
            rank = key[::-1] if wanted.are_numbers else key
            if found and (len(found) > 1 or kind == _LEAF) and rank <= before:
                raise JournalCorruptError("its keys are out of order")
            before = rank
            found.append(_Node(low, high, bits, key, base + data))
        return found

    def _row(self, number: int, node: _Node) -> tuple[bytes, bytes]:
        size = node.low | node.high << 16
        at = node.at
        if node.flags & ~(_BIG_DATA | _SUB_DATABASE):
            raise JournalCorruptError("a row is of an unknown kind")
        if node.flags & _BIG_DATA:
            # The value has pages of its own, behind one header.
            (page,) = _NUMBER.unpack_from(self._data, at)
            at = page * self.page_size + _PAGE.size
            if page > self._last or at + size > len(self._data):
                raise JournalCorruptError("a large value is outside of the file")
        elif at + size > (number + 1) * self.page_size:
            raise JournalCorruptError("a value is outside of it")
        return node.key, bytes(self._data[at : at + size])
