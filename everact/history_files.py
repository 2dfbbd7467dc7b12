"""Files of histories: what ``everact journal export`` and ``everact history --json`` have written."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actors.descriptions import History

__all__ = ["UnreadableHistoryError", "check_history_file", "find_run", "read_histories"]

#: Runs that are named where one has to be chosen.
NAMED = 10


class UnreadableHistoryError(ValueError):
    """A file holds no history that can be used."""


def read_histories(path: Path) -> list[History]:
    """All runs of a file that are whole, in its order; ``-`` is standard input.

    Raises:
        UnreadableHistoryError: There is none.
        OSError: It cannot be read.
    """
    from .actors.descriptions import History  # noqa: PLC0415  (each command loads only what it needs)
    from .testing.history_sources import histories_of  # noqa: PLC0415

    check_history_file(path)
    is_input = str(path) == "-"
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if is_input else ""
    if is_input and not text.lstrip().startswith("{"):
        raise UnreadableHistoryError("standard input holds no history: `everact journal export` writes them")
    stored = list(histories_of(text if is_input else path))
    found = [History(one.workflow_id, one.run_id, list(one.records)) for one in stored if one.error is None]
    if not found:
        reasons = [str(one.error) for one in stored if one.error is not None]
        raise UnreadableHistoryError(
            f"{str(path)!r} holds no history: {reasons[0] if reasons else 'it is empty'}"
        )
    return found


def check_history_file(path: Path, *, may_be_folder: bool = False) -> None:
    """Refuse what is no file, as a workflow id is none, and say how to get one.

    Raises:
        UnreadableHistoryError: There is no such file.
    """
    if str(path) == "-" or (path.exists() and (may_be_folder or not path.is_dir())):
        return
    name = str(path)
    where = f"{name!r} is a folder" if path.is_dir() else f"there is no file {name!r}"
    looks_like_id = not path.is_dir() and path.suffix not in {".json", ".jsonl"} and path.parent == Path()
    run = shlex.quote(name) if looks_like_id else "ID"
    raise UnreadableHistoryError(
        f"{where}: what is wanted is a file with the history of a run. Write one with "
        f"`everact history {run} --journal DIR --json > history.json`, or `everact journal export DIR {run} -o "
        f"history.json`"
    )


def find_run(
    found: Sequence[History], path: Path, workflow_id: str | None = None, run_id: str | None = None
) -> History:
    """The one run that is meant; of several of a workflow id the last one in the file.

    Raises:
        UnreadableHistoryError: There is none, or it is not clear which.
    """
    names = [f"{one.workflow_id!r} (run {one.run_id})" for one in found]
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    wanted = [one for one in found if workflow_id in (None, one.workflow_id) and run_id in (None, one.run_id)]
    if not wanted:
        which = " and ".join(
            text
            for text in (
                f"workflow id {workflow_id!r}" if workflow_id is not None else "",
                f"run id {run_id!r}" if run_id is not None else "",
            )
            if text
        )
        raise UnreadableHistoryError(
            f"{str(path)!r} has no run{f' of {which}' if which else ''}; it has: {shown or 'nothing'}"
        )
    if len({one.workflow_id for one in wanted}) > 1 or (len(wanted) > 1 and workflow_id is None):
        raise UnreadableHistoryError(
            f"{str(path)!r} has {len(wanted)} runs, choose one by --id or --run-id: {shown}"
        )
    return wanted[-1]
