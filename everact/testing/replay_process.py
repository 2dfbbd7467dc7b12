"""Replays in other processes, whose sets have another order: each is started with its own ``PYTHONHASHSEED``."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from ..actors.interceptors import Interceptor
from ..journal import events as ev
from .history_sources import StoredHistory
from .replay_report import ReplayFailure, ReplayResult

__all__ = ["Answer", "Job", "Named", "ReplayProcess", "Spawned", "read_frame", "spawned", "write_frame"]

_LENGTH = 8
#: How long a process may take to end once it is told to, in seconds.
_END = 10.0
_ADVICE = "Move it to the top level of a module that other processes can import, or leave hash_seeds out."


class Named(msgspec.Struct, frozen=True):
    """A class or a function by its name, and the file of its module for where that is not on the path."""

    module: str
    qualname: str
    file: str = ""


class Spawned(msgspec.Struct, frozen=True):
    """What such a process begins with.

    Attributes:
        path: Where it imports from.
        workflows: The classes.
        activities: The functions; None as of the ``Replayer``.
        modules: More modules that are needed before ``pickled`` is read.
        pickled: The interceptors and the converters.
        trust_pickle: As of the ``Replayer``.
        guard: As of the ``Replayer``.
        jump_steps: As of the ``Replayer``.
    """

    path: list[str]
    workflows: list[Named]
    activities: list[Named] | None
    modules: list[Named]
    pickled: bytes
    trust_pickle: bool
    guard: str
    jump_steps: bool


class Job(msgspec.Struct, frozen=True):
    """A history to replay."""

    workflow_type: str
    workflow_id: str
    run_id: str
    records: list[tuple[int, bytes]]


class Answer(msgspec.Struct, frozen=True):
    """What became of it, or of the start of the process."""

    failure: ReplayFailure | None = None
    seconds: float = 0.0
    refused: str = ""


def spawned(
    workflows: Iterable[type[Any]],
    activities: Sequence[Any] | None,
    *,
    interceptors: Sequence[Interceptor],
    converters: Sequence[Any],
    trust_pickle: bool,
    guard: str,
    jump_steps: bool,
) -> Spawned:
    """Name all that another process needs.

    Raises:
        ValueError: Something has no name there.
    """
    try:
        pickled = pickle.dumps((tuple(interceptors), list(converters)))
    except Exception as error:
        raise ValueError(
            f"hash_seeds: the interceptors and converters go to other processes by pickle, and cannot "
            f"({type(error).__name__}: {error}). {_ADVICE}"
        ) from error
    return Spawned(
        path=list(sys.path),
        workflows=[_named("workflow", cls) for cls in workflows],
        activities=None if activities is None else [_named("activity", fn) for fn in activities],
        modules=[_named("interceptor", type(one)) for one in interceptors],
        pickled=pickled,
        trust_pickle=trust_pickle,
        guard=guard,
        jump_steps=jump_steps,
    )


def _named(what: str, it: Any) -> Named:
    module, qualname = getattr(it, "__module__", ""), getattr(it, "__qualname__", repr(it))
    where = f"hash_seeds: {what} {qualname!r} of module {module!r}"
    if module == "__main__":
        raise ValueError(
            f"{where} cannot be imported by another process: that has a __main__ of its own. {_ADVICE}"
        )
    if "<locals>" in qualname:
        raise ValueError(f"{where} cannot be imported: it is made inside a function. {_ADVICE}")
    found: Any = sys.modules.get(module)
    file = getattr(found, "__file__", None) or ""
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not it:
        raise ValueError(
            f"{where} cannot be imported: that name is not there, or is something else. {_ADVICE}"
        )
    return Named(module, qualname, file)


class ReplayProcess:
    """A process that replays one history after the other.

    Attributes:
        hash_seed: Its ``PYTHONHASHSEED``.
    """

    def __init__(self, begin: Spawned, hash_seed: int) -> None:
        self._begin = begin
        self.hash_seed = hash_seed
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            ValueError: It cannot import what it needs.
        """
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def replay(self, history: StoredHistory) -> ReplayResult:
        """Replay a history there."""
        if self._process is None:
            self._start()
        records = [(at, ev.encode_record(record)) for at, record in history.records]
        job = Job(history.workflow_type, history.workflow_id, history.run_id, records)
        answer = self._ask(job)
        if answer is None:
            code = self._end()
            answer = Answer(
                ReplayFailure("crashed", f"the process of this replay died with exit code {code}")
            )
        return ReplayResult(
            history.workflow_type,
            history.workflow_id,
            history.run_id,
            history.source,
            history.events,
            answer.seconds,
            self.hash_seed,
            answer.failure,
        )

    def _start(self) -> None:
        self._process = subprocess.Popen(
            # Without the working directory on its path, where a folder may have our name.
            [sys.executable, "-P", "-m", "everact.testing.replay_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": str(self.hash_seed)},
        )
        answer = self._ask(self._begin)
        if answer is None:
            raise ValueError(
                f"hash_seeds: the process of the replay died at its start with exit code {self._end()}"
            )
        if answer.refused:
            self._end()
            raise ValueError(
                f"hash_seeds: another process cannot import what it needs: {answer.refused}. {_ADVICE}"
            )

    def _ask(self, what: Spawned | Job) -> Answer | None:
        """Its answer; None when it is dead."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, msgspec.msgpack.encode(what))
        except BrokenPipeError:
            return None
        frame = read_frame(process.stdout)
        return None if frame is None else msgspec.msgpack.decode(frame, type=Answer)

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        with process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                return process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                return process.wait()


def write_frame(file: IO[bytes], data: bytes) -> None:
    """Send a message."""
    file.write(len(data).to_bytes(_LENGTH, "big"))
    file.write(data)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes | None:
    """Receive a message; None at the end."""
    head = file.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "big")
    data = file.read(size)
    return data if len(data) == size else None
