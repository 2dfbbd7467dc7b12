"""``python -m everact.testing.replay_child``: the other end of ``ReplayProcess``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
from typing import Any, cast

import msgspec

from ..actors.turn_guard import Guard
from ..journal import events as ev
from .history_sources import StoredHistory
from .replay_process import Answer, Job, Named, Spawned, read_frame, write_frame
from .replayer import Replayer

__all__: list[str] = []


def _module(named: Named) -> Any:
    try:
        return importlib.import_module(named.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{named.module}.".startswith(f"{error.name}.") or not named.file:
            raise
    # A file that is on no path, such as a test module of pytest.
    spec = importlib.util.spec_from_file_location(named.module, named.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module named {named.module!r}")
    module = sys.modules[named.module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _found(named: Named) -> Any:
    found = _module(named)
    for part in named.qualname.split("."):
        found = getattr(found, part)
    return found


def _replayer(begin: Spawned) -> Replayer:
    sys.path[:] = begin.path
    workflows = [_found(named) for named in begin.workflows]
    activities = None if begin.activities is None else [_found(named) for named in begin.activities]
    for named in begin.modules:
        _module(named)
    interceptors, converters = pickle.loads(begin.pickled)  # noqa: S301  (our parent's)
    return Replayer(
        workflows=workflows,
        activities=activities,
        interceptors=interceptors,
        converters=converters,
        trust_pickle=begin.trust_pickle,
        guard=cast("Guard", begin.guard),
        jump_steps=begin.jump_steps,
    )


def main() -> None:
    """Replay what comes, until the end."""
    # What the code prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    begin = read_frame(questions)
    if begin is None:
        return
    try:
        replayer = _replayer(msgspec.msgpack.decode(begin, type=Spawned))
    except Exception as error:  # noqa: BLE001  (modules of users may raise anything; the parent says it)
        write_frame(answers, msgspec.msgpack.encode(Answer(refused=f"{type(error).__name__}: {error}")))
        return
    write_frame(answers, msgspec.msgpack.encode(Answer()))
    while (frame := read_frame(questions)) is not None:
        job = msgspec.msgpack.decode(frame, type=Job)
        records = tuple((at, ev.decode_record(body)) for at, body in job.records)
        history = StoredHistory("", job.workflow_type, job.workflow_id, job.run_id, records)
        result = replayer.result_of(history)
        write_frame(answers, msgspec.msgpack.encode(Answer(result.failure, result.seconds)))


if __name__ == "__main__":
    main()
