"""What a run's code looks like at one moment: its tasks with their stacks and locals, its object, what is in flight."""

from __future__ import annotations

import asyncio
import linecache
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from ..actors.workflow_instance import WorkflowInstance
from .tracing import UserCode, is_turn

#: Characters of one value.
VALUE = 500


@dataclass(frozen=True)
class FrameState:
    """One call of user code.

    Attributes:
        file: Its file.
        line: Where it is.
        function: Its name.
        source: The text of the line.
        locals: Its variables as text.
    """

    file: str
    line: int
    function: str
    source: str
    locals: dict[str, str]


@dataclass(frozen=True)
class TaskState:
    """One task of a run.

    Attributes:
        name: Its name; ``main`` runs the workflow's run method.
        is_running: It runs at this moment, the others wait.
        waits_for: What it waits for.
        frames: Its calls, the outermost first.
    """

    name: str
    is_running: bool
    waits_for: str
    frames: list[FrameState]


@dataclass(frozen=True)
class RunState:
    """A run at one moment.

    Attributes:
        fields: Of the workflow object, as text.
        in_flight: Activities, timers, children and messages that are not over, by command number.
        tasks: The one that runs first, the others in order of their creation.
    """

    fields: dict[str, str]
    in_flight: dict[int, str]
    tasks: list[TaskState] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "object": self.fields,
            "in_flight": [{"command": number, "what": what} for number, what in self.in_flight.items()],
            "tasks": [asdict(task) for task in self.tasks],
        }


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = VALUE
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxdeque = 30


_short = _Short()


def shown(value: object) -> str:
    """A value as text, whatever its ``repr`` does."""
    try:
        text = _short.repr(value)
    except Exception as error:  # noqa: BLE001  (user code)
        return f"<{type(value).__name__}, its repr raises {type(error).__name__}>"
    return text if len(text) <= VALUE else f"{text[: VALUE - 3]}..."


def run_state(instance: WorkflowInstance, user: UserCode, frame: FrameType | None = None) -> RunState:
    """Look at a run.

    Args:
        instance: Its code.
        user: Which frames are of interest.
        frame: The one that runs; None when all wait.
    """
    in_flight = _in_flight(instance)
    running = None
    tasks: list[TaskState] = []
    if frame is not None:
        running = asyncio.current_task(instance.loop)
        name = "(none: a handler, or __init__)" if running is None else running.get_name()
        tasks.append(TaskState(name, True, "", _states(reversed(list(_stack(frame, user))))))
    for task in instance.loop.live_tasks():
        if task is not running:
            waits_for = _waits_for(instance, task, in_flight)
            tasks.append(TaskState(task.get_name(), False, waits_for, _states(_chain(task, user))))
    return RunState(fields_of(instance._object), in_flight, tasks)


def fields_of(thing: Any) -> dict[str, str]:
    """The attributes of the workflow object."""
    slots = [name for cls in type(thing).__mro__ for name in cls.__dict__.get("__slots__", ())]
    values = {name: getattr(thing, name) for name in slots if isinstance(name, str) and hasattr(thing, name)}
    return _texts(values | getattr(thing, "__dict__", {}))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): shown(value) for name, value in list(values.items())}


def _in_flight(instance: WorkflowInstance) -> dict[int, str]:
    found = {command: future.label for command, future in instance.pending.items()}
    found |= dict.fromkeys(instance.timers, "timer")
    if instance.relations is not None:
        found |= {command: future.label for command, future in instance.relations.children.items()}
        found |= {command: future.label for command, future in instance.relations.messages.items()}
    return dict(sorted(found.items()))


def _waits_for(instance: WorkflowInstance, task: asyncio.Task[Any], in_flight: Mapping[int, str]) -> str:
    waiter: Any = task._fut_waiter  # type: ignore[attr-defined]
    if waiter is None:
        return "its turn"
    if waiter in instance._conditions:
        return "a condition"
    command: Any = getattr(waiter, "command", None)
    if command in in_flight:
        return f"{in_flight[command]} (command {command})"
    if isinstance(waiter, asyncio.Task):
        return f"task {waiter.get_name()!r}"
    return "a future"


def _stack(frame: FrameType | None, user: UserCode) -> Iterator[FrameType]:
    """The user's frames around one, up to where the runtime has begun the turn."""
    while frame is not None and not is_turn(frame):
        if frame in user:
            yield frame
        frame = frame.f_back


def _chain(task: asyncio.Task[Any], user: UserCode) -> Iterator[FrameType]:
    """The frames of a task that waits, the outermost first."""
    inner: Any = task.get_coro()
    seen: set[int] = set()
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        frame = _first(inner, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None and frame in user:
            yield frame
        inner = _first(inner, "cr_await", "gi_yieldfrom", "ag_await")


def _first(thing: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(thing, name, None)) is not None), None)


def _states(frames: Iterable[FrameType]) -> list[FrameState]:
    found = []
    for frame in frames:
        code, line = frame.f_code, frame.f_lineno
        source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        found.append(FrameState(code.co_filename, line, code.co_qualname, source, _texts(frame.f_locals)))
    return found


def lines_of(state: RunState) -> Iterator[str]:
    """A run as text."""
    for task in state.tasks:
        how = "runs" if task.is_running else f"waits for {task.waits_for}"
        yield f"task {task.name}: {how}"
        for one in task.frames:
            yield f"  {one.file}:{one.line}, in {one.function}"
            if one.source:
                yield f"    {one.source}"
            yield from (f"      {name} = {text}" for name, text in one.locals.items())
    yield f"in flight: {'' if state.in_flight else 'nothing'}".rstrip()
    yield from (f"  command {number}: {what}" for number, what in state.in_flight.items())
    yield f"the workflow object: {'' if state.fields else 'no fields'}".rstrip()
    yield from (f"  {name} = {text}" for name, text in state.fields.items())
