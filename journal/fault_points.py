"""Named places where a test may kill the process, raise, or run code; free of cost in normal use.

A process started with ``EVERACT_FAULT="journal.commit.after:3"`` kills itself with SIGKILL at the third
pass of that point. Tests in the same process use ``armed(name, action)``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

#: Every fault point by name; the crash tests go through all of them.
FAULT_POINTS = (
    "journal.open.before",
    "journal.open.created",
    "journal.open.migrated",
    "journal.open.after",
    "recovery.loaded",
    "recovery.blamed",
    "recovery.after",
    "journal.commit.before",
    "journal.commit.written",
    "journal.commit.after",
    "compaction.before",
    "compaction.written",
    "purge.before",
    "purge.written",
    "rewrite.begun",
    "rewrite.copied",
    "rewrite.ready",
    "rewrite.unlinked",
    "rewrite.renamed",
    "rewrite.after",
    "runtime.effects.before",
    "runtime.effects.after",
    "activity.start.before",
    "activity.result.before",
    "activity.note.before",
    "activity.cancel.before",
    "activity.complete.before",
    "timer.fire.before",
    "message.ack.before",
    "run.restart.before",
    "run.control.before",
    "outbox.send.before",
    "outbox.apply.before",
    "outbox.written",
    "courier.take.before",
    "courier.applied",
    "run.continue.before",
    "run.continue.after",
    "run.begin.before",
    "run.timeout.before",
)

#: Called with the name of a point, and who passes it.
Watcher = Callable[[str, object], None]
_watchers: list[Watcher] = []


def fault_point(name: str, passer: object = None) -> None:
    """Tell those who watch; does nothing otherwise.

    Args:
        name: One of ``FAULT_POINTS``.
        passer: The object of a runtime that passes it, for who watches one runtime of several; None for work that is
            done inside of a commit, or where there is no runtime yet.
    """
    if _watchers:
        for watcher in tuple(_watchers):
            watcher(name, passer)


@contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Call ``watcher(name, passer)`` at each pass of every point inside the ``with`` block, on whatever thread."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextmanager
def armed(name: str, action: Callable[[], None]) -> Generator[None]:
    """Run ``action`` at each pass of the fault point ``name`` inside the ``with`` block."""
    if name not in FAULT_POINTS:
        raise ValueError(f"unknown fault point {name!r}; known: {', '.join(FAULT_POINTS)}")

    def watcher(passed: str, _passer: object) -> None:
        if passed == name:
            action()

    with watched(watcher):
        yield


def arm_from_environment(setting: str | None) -> None:
    """Arm what ``EVERACT_FAULT`` names: ``name:count``, where the count-th pass kills this process."""
    if not setting:
        return
    name, _, count = setting.partition(":")
    if name not in FAULT_POINTS:
        raise ValueError(f"EVERACT_FAULT names an unknown fault point {name!r}")
    left = int(count or 1)

    def kill(passed: str, _passer: object) -> None:
        nonlocal left
        if passed == name:
            left -= 1
            if left <= 0:  # threads pass here too
                os.kill(os.getpid(), signal.SIGKILL)

    _watchers.append(kill)


arm_from_environment(os.environ.get("EVERACT_FAULT"))
