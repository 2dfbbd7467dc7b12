"""Was it the sync that failed? What a failed commit says of the disk (R5).

After a failed sync the page cache shows data that the disk does not hold, so nobody may go on from it. The error code
does not tell a failed sync from a failed write: a short write is reported as EIO, and a sync that finds no room on the
device below reports ENOSPC while the file system has plenty (both tried).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import lmdb

from .lmdb_format import DATA_FILE

#: A commit that failed for want of room leaves less of it, in bytes.
ROOM = 16 << 20
#: A full disk, a quota, a limit of the process; a file system that turned read-only, a descriptor that cannot write.
_NO_WRITE = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EBADF])


class DataFile:
    """A descriptor of a journal's data file beside LMDB's own.

    Linux reports a failed write-back once to every descriptor that was open when it failed. So this one, opened before
    the first commit, learns of a failed sync of LMDB's.

    Args:
        path: The journal's directory; its data file must exist.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(Path(path, DATA_FILE), os.O_RDWR | os.O_CLOEXEC)

    def sync_failure(self, error: lmdb.Error) -> str:
        """Say why a failed commit may have been a failed sync; empty when it surely was not.

        Call it at once, with the transaction over and nobody else writing.

        Args:
            error: What LMDB's commit raised.
        """
        if error.code < 0 and not isinstance(error, lmdb.PanicError):
            return ""  # LMDB's own codes (a full map) come before anything is written
        try:
            os.fdatasync(self._fd)
        except OSError as failed:
            return f"a sync of its data file failed ({failed.strerror})"
        size = os.fstat(self._fd).st_size
        try:
            os.posix_fallocate(self._fd, size, ROOM)
        except OSError as failed:
            if failed.errno in _NO_WRITE:  # ours is exact; a write failed, and LMDB does not sync after that
                return ""
            seen = f"the data file cannot grow ({failed.strerror})"
        else:
            seen = "there is room"
        finally:
            with suppress(OSError):
                os.ftruncate(self._fd, size)
        return f"a commit failed ({error}) and {seen}, so that a failed sync cannot be excluded"

    def drop_cache(self) -> None:
        """Let the next reader get what is on disk; call it once no map of this process shows the file."""
        with suppress(OSError):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Give the descriptor back; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
