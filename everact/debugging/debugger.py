"""Replays a history up to one of its events, and stops in the user's code there."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

from ..actors.definitions import WorkflowDefinition
from ..actors.descriptions import History, HistoryEvent
from ..actors.errors import NondeterminismError
from ..actors.intercepted_runs import InterceptedInstance
from ..actors.replay import Replay
from ..actors.run_end import WorkflowCrashedError
from ..actors.turn_guard import install_guards
from ..actors.workflow_instance import Delivery, WorkflowInstance
from ..history_texts import event_line, fields_text
from ..journal import events as ev
from ..journal.errors import JournalCorruptError, PayloadDecodeError
from .code_files import Code, CodeNotFoundError
from .pdb_session import LeftError, RunPdb
from .run_state import RunState, run_state
from .targets import Target, find_target
from .tracing import Scout, Spot, Stopper, Tracer, UserCode


class HistoryMismatchError(Exception):
    """The code cannot be brought to the event: it decides or raises something else before."""


@dataclass(frozen=True)
class Stop:
    """Where a run was stopped.

    Attributes:
        event: What was asked for.
        notes: What is to be said about it.
        state: The run at that moment.
    """

    event: HistoryEvent
    notes: list[str]
    state: RunState


class _Watched:
    """An instance whose turns a tracer sees."""

    tracer: Tracer | None = None

    def turn(self, at: int, deliveries: Sequence[Delivery]) -> list[Any]:
        turn: Callable[[int, Sequence[Delivery]], list[Any]] = super().turn  # type: ignore[misc]
        if self.tracer is None:
            return turn(at, deliveries)
        assert isinstance(self, WorkflowInstance)
        return self.tracer.run(self, turn, at, deliveries)


class _WatchedInstance(_Watched, WorkflowInstance):
    pass


class _WatchedInterceptedInstance(_Watched, InterceptedInstance):
    pass


class _EveryStep:
    """Says that all steps are to be run: their code may be what is looked for."""

    def __contains__(self, _command: object) -> bool:
        return True


class Debugger:
    """Stops one history at one event.

    Attributes:
        target: The event.
        notes: What is to be said about it.
    """

    def __init__(self, history: History, code: Code, number: int) -> None:
        """Look for the place; the user's code runs once for that.

        Args:
            history: What is replayed.
            code: What runs.
            number: Of the event.

        Raises:
            EventNotReachedError: There is no such event, or no code sees it.
            CodeNotFoundError: The code lacks something that the history names.
            HistoryMismatchError: The code does something else before it.
        """
        self._history = history
        self._code = code
        self.target: Target = find_target(history, number)
        self.notes: list[str] = []
        self._definition = _definition(history, code)
        home = self._definition.run.__code__.co_filename
        self.user = UserCode(home)
        self._spot = self._scouted()

    @property
    def event(self) -> HistoryEvent:
        """The event that was asked for."""
        return self._history.events[self.target.number - 1]

    def about(self) -> list[str]:
        """What is said where it stops."""
        found = self._history
        return [
            f"{found.workflow_id!r} ({self._definition.name}, run {found.run_id}), event {_line(self.event)}",
            *self.notes,
        ]

    # --- the way there

    def _scouted(self) -> Spot | None:
        scout = Scout(self.target, self.user)
        with contextlib.redirect_stdout(io.StringIO()), _no_breakpoints():
            instance = self._instance(scout)
            try:
                self._replay(instance, lambda: scout.spot is not None and scout.was_there)
            except WorkflowCrashedError as crash:
                if not scout.was_there:
                    raise HistoryMismatchError(self._mismatch(crash)) from crash.error
                scout.gave_up()
                self.notes.append(f"in this turn {self._what_happened(crash)}")
            except JournalCorruptError as error:
                raise HistoryMismatchError(f"the history is damaged: {error}") from error
            finally:
                instance.discard()
        if scout.spot is None:
            self.notes.append("no code of the workflow runs because of it, nor after it")
        elif scout.is_late:
            self.notes.append("no code of the workflow runs because of it: this is what runs next")
        return scout.spot

    def _mismatch(self, crash: WorkflowCrashedError) -> str:
        error = crash.error
        text = f"the code cannot be brought to event {self.target.number}: {self._what_happened(crash)}"
        if isinstance(error, NondeterminismError):
            text += f"\n`--to-event {error.event}` stops in the turn that differs"
        return text

    def _what_happened(self, crash: WorkflowCrashedError) -> str:
        error = crash.error
        if isinstance(error, NondeterminismError):
            return str(error)
        if isinstance(error, PayloadDecodeError):
            return (
                f"a stored value cannot be read: {error}. If the journal's payload codecs have coded it, take the "
                f"history from the running program: `everact history ID --journal DIR --json`"
            )
        place, trace = "", error.__traceback__
        while trace is not None:
            if trace.tb_frame in self.user:
                place = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
            trace = trace.tb_next
        return f"the code raises {type(error).__name__}: {error}{place}"

    # --- stopping

    def look(self) -> Stop:
        """Stop, look at the run's tasks, and leave."""
        stopped: list[RunState] = []

        def stop(frame: FrameType, _kind: str, _arg: Any) -> None:
            stopped.append(run_state(instance, self.user, frame))
            raise LeftError

        tracer = None if self._spot is None else Stopper(self._spot, self.user, stop)
        instance = self._instance(tracer)
        try:
            with _no_breakpoints(), contextlib.redirect_stdout(io.StringIO()):
                try:
                    self._replay(instance, lambda: bool(stopped))
                except WorkflowCrashedError:
                    if not stopped:
                        raise
            if not stopped:
                stopped.append(run_state(instance, self.user))
        finally:
            instance.discard()
        return Stop(self.event, self.notes, stopped[0])

    def debug(self, *, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> list[str]:
        """Stop in pdb; then go on as the user says, to the end of the history.

        Returns:
            How it ended, for people; nothing when the user has left.
        """

        def state(frame: FrameType | None) -> RunState:
            return run_state(instance, self.user, frame)

        session = RunPdb(self.user, self.about(), state, self._lines, stdin=stdin, stdout=stdout)
        tracer = None if self._spot is None else Stopper(self._spot, self.user, session.begin)
        instance = self._instance(tracer)
        before = sys.gettrace()
        try:
            self._replay(instance, lambda: session.has_left)
            sys.settrace(before)
            if session.has_left:
                return []
            return self.about() if self._spot is None else list(_end_of(instance, self.user))
        except WorkflowCrashedError as crash:
            return [] if session.has_left else [f"the replay ends here: {self._what_happened(crash)}"]
        finally:
            sys.settrace(before)
            instance.discard()

    def _lines(self, number: int | None) -> Iterator[str]:
        """Of the history, for pdb."""
        for event in self._history:
            if number is None:
                yield f"{'->' if event.number == self.target.number else '  '} {_line(event)}"
            elif event.number == number:
                yield f"{event.number} {event.at:%Y-%m-%d %H:%M:%S.%f} {event.kind}"
                yield fields_text(event)

    # --- the replay

    def _instance(self, tracer: Tracer | None) -> Any:
        install_guards("warn")
        code, guard = self._code, "warn"
        instance: Any
        if code.interceptors:
            instance = _WatchedInterceptedInstance(
                self._definition,
                code.activities,
                code.converter,
                guard,  # type: ignore[arg-type]
                code.interceptors,
                workflows=code.workflows,
            )
        else:
            instance = _WatchedInstance(
                self._definition,
                code.activities,
                code.converter,
                guard,  # type: ignore[arg-type]
                workflows=code.workflows,
            )
        instance.tracer = tracer
        return instance

    def _replay(self, instance: WorkflowInstance, is_over: Callable[[], bool]) -> None:
        """Replay all records, and let the run have what it had received and not handled.

        Raises:
            WorkflowCrashedError: The code decides otherwise, or raises.
        """
        replay = Replay(instance, self._history.records, _EveryStep())
        while replay._go_on():
            if is_over():
                return
        if self.target.is_undelivered:
            instance.replaying = False
            for at, delivery in _undelivered(self._history.records, self.target.number):
                instance.started_at = instance.started_at or at
                instance.turn(at, [delivery])
                if is_over():
                    return


def _undelivered(records: Iterable[tuple[int, ev.Record]], until: int) -> Iterator[tuple[int, Delivery]]:
    """What a run that stands still has received, up to an event."""
    received: dict[int, tuple[int, Delivery]] = {}
    last = 0
    for at, record in records:
        if isinstance(record, ev.Received):
            for number, event in enumerate(record.inputs, last + 1):
                if not isinstance(event, ev.SILENT):
                    received[number] = at, Delivery(number, event, was_received=True)
        else:
            for number in record.delivers:
                received.pop(number, None)
        last += len(ev.events_of(record))
    return (found for number, found in received.items() if number <= until)


def _definition(history: History, code: Code) -> WorkflowDefinition:
    started = history.events[0].event
    assert isinstance(started, ev.WorkflowStarted)
    definition = code.workflows.get(started.workflow_type)
    if definition is None:
        known = ", ".join(map(repr, sorted(code.workflows))) or "none"
        raise CodeNotFoundError(
            f"workflow type {started.workflow_type!r} is not in the code that was loaded (it has: {known}): name the "
            f"file with --module, or the class with --workflows module:Class"
        )
    missing = sorted(
        {
            event.event.activity_type
            for event in history
            if isinstance(event.event, ev.ActivityScheduled)
            and event.event.activity_type not in code.activities
        }
    )
    if missing:
        raise CodeNotFoundError(
            f"activities of the history are not in the code that was loaded: {', '.join(map(repr, missing))}; name "
            f"the file that declares them with one more --module (nothing of them is run)"
        )
    return definition


def _line(event: HistoryEvent) -> str:
    return f"{event.number} {event_line(event)}"


def _end_of(instance: WorkflowInstance, user: UserCode) -> Iterator[str]:
    """How the run stands at the end of the history."""
    if instance.outcome is not None:
        yield f"the history ends here: the run has ended ({type(instance.outcome).__name__})"
        return
    tasks = run_state(instance, user).tasks
    waits = [
        f"waits for {task.waits_for}"
        + (f", at {task.frames[-1].file}:{task.frames[-1].line}" if task.frames else "")
        for task in tasks
    ]
    for number, (task, text) in enumerate(zip(tasks, waits, strict=True)):
        yield f"the history ends here: the run {text}" if number == 0 else f"task {task.name} {text}"
    if not tasks:
        yield "the history ends here: the run has begun nothing that waits"


@contextmanager
def _no_breakpoints() -> Generator[None]:
    """``breakpoint()`` of the user does nothing on the way."""
    before = sys.breakpointhook
    sys.breakpointhook = lambda *_args, **_kwargs: None
    try:
        yield
    finally:
        sys.breakpointhook = before
