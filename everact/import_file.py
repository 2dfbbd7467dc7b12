"""The file that ``everact journal import`` reads: one document a line, read as often as it is asked for."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

__all__ = ["Documents"]


class Documents:
    """The documents of a file, as a context; standard input is kept in a temporary file meanwhile.

    Args:
        path: The file; ``-`` is standard input.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()
        self._file: BinaryIO

    def __enter__(self) -> Self:
        """Open it."""
        from .journal.disk_trouble import saying  # noqa: PLC0415  (each command loads only what it needs)

        with saying(f"the file {str(self._path)!r} cannot be read"):
            is_input = str(self._path) == "-"
            given: BinaryIO = (
                sys.stdin.buffer if is_input else self._stack.enter_context(self._path.open("rb"))
            )
            self._file = given
            if is_input or not given.seekable():
                with saying("what is imported cannot be kept in a temporary file"):
                    self._file = self._stack.enter_context(tempfile.TemporaryFile())
                    shutil.copyfileobj(given, self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._stack.close()

    def check(self) -> None:
        """Look for lines that are no JSON; raises as iterating does."""
        for _ in self:
            pass

    def __iter__(self) -> Iterator[Any]:
        """The documents, from the first one on.

        Raises:
            ImportRefusedError: A line is no JSON.
        """
        import msgspec  # noqa: PLC0415

        from .journal.disk_trouble import saying  # noqa: PLC0415
        from .journal.errors import ImportRefusedError  # noqa: PLC0415

        decode = msgspec.json.Decoder().decode
        with saying(f"the file {str(self._path)!r} cannot be read"):
            self._file.seek(0)
            for number, line in enumerate(self._file, 1):
                if not line.strip():
                    continue
                try:
                    document = decode(line)
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    raise ImportRefusedError(
                        f"line {number} of {str(self._path)!r} is no JSON ({error}), and nothing was imported: give a "
                        f"file that `everact journal export` wrote"
                    ) from error
                yield document
