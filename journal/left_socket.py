"""The socket that a killed program leaves beside its journal: whoever writes next takes it away.

Nobody listens there any more, and tools that copy directories stumble over it. The journal only knows its name; what it
is for is said in ``docs/adr/0007``.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

#: Name of the socket in the journal's directory.
SOCKET_FILE = "everact.sock"


def clear_socket(path: str) -> None:
    """Take a socket away that an earlier writer has left; the caller has just got the writer's lock."""
    place = Path(path, SOCKET_FILE)
    with suppress(OSError):  # there is none, or it cannot be helped: a door says so when it is opened
        if stat.S_ISSOCK(place.lstat().st_mode):
            place.unlink()
