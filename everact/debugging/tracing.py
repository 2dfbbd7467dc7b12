"""Which line of user code runs because of an event: found by tracing its turn, and found again in the next replay.

A replay repeats its turns exactly, so the same line is met the same number of times.
"""

from __future__ import annotations

import dis
import inspect
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..actors import conditions
from ..actors.workflow_instance import Delivery, WorkflowInstance
from ..journal import events as ev
from .targets import Target

Trace = Callable[[FrameType, str, Any], Any]

_PACKAGE = __name__.partition(".")[0]
_STDLIB, _SITE = (
    tuple({f"{sysconfig.get_path(name)}/" for name in names})
    for names in (("stdlib", "platstdlib"), ("purelib", "platlib"))
)
_CONDITIONS = conditions.__name__
_SUSPENDS = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class UserCode:
    """Tells the user's frames from others: not ours, not the standard library's, and not those of installed packages.

    Args:
        home: File of the workflow; if that is in an installed package itself, all of these count.
    """

    def __init__(self, home: str) -> None:
        self._others = _STDLIB if home.startswith(_SITE) else (*_STDLIB, *_SITE)
        self._site = home.startswith(_SITE)
        self._known: dict[str, bool] = {}

    def __contains__(self, frame: FrameType) -> bool:
        path = frame.f_code.co_filename
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = not path.startswith("<") and (
                (self._site and path.startswith(_SITE)) or not path.startswith(self._others)
            )
        return known and frame.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE

    def caller(self, frame: FrameType) -> FrameType | None:
        """The user's frame in a line of which one was called; None where the runtime has called it for its own.

        Functions that a call of ours calls at once, such as a condition, are called in that line; a coroutine that we
        await there, such as the body of a step, is not.
        """
        back = frame.f_back
        if back is not None and back in self:
            return back
        if frame.f_code.co_flags & _SUSPENDS:
            return None
        while back is not None and not is_turn(back):
            if back in self:
                return back
            back = back.f_back
        return None

    def is_condition(self, frame: FrameType | None) -> bool:
        """Whether the runtime looks at a condition: no event is the reason for that."""
        while frame is not None and frame in self:
            frame = frame.f_back
        return frame is not None and frame.f_globals.get("__name__") == _CONDITIONS


class Spot(NamedTuple):
    """A moment in a turn.

    Attributes:
        turn: Number of the event that the turn delivers first.
        kind: What Python tells a tracer: ``line``, ``call`` (also of a coroutine that goes on), ``return``,
            ``exception``.
        code: Of the frame.
        line: Of the frame.
        nth: How often the turn has come there.
    """

    turn: int
    kind: str
    code: CodeType
    line: int
    nth: int


class Tracer:
    """Sees what user code does in a turn; subclasses decide what to do about it.

    Attributes:
        user: Which frames are the user's.
    """

    def __init__(self, user: UserCode) -> None:
        self.user = user
        self._turn = 0
        self._counts: Counter[tuple[str, CodeType, int]] = Counter()

    def wants(self, deliveries: Sequence[Delivery]) -> bool:
        """Whether to trace a turn."""
        raise NotImplementedError

    def run(
        self,
        instance: WorkflowInstance,
        turn: Callable[[int, Sequence[Delivery]], list[Any]],
        at: int,
        deliveries: Sequence[Delivery],
    ) -> list[Any]:
        """Run a turn, traced if it is wanted."""
        if not self.wants(deliveries):
            return turn(at, deliveries)
        self._turn = deliveries[0].number
        self._counts.clear()
        deliveries = self.begin(instance, deliveries)
        before = sys.gettrace()
        mine: Trace = self._call
        sys.settrace(mine)
        try:
            outputs = turn(at, deliveries)
        finally:
            if sys.gettrace() == mine:  # a debugger that has taken over goes on
                sys.settrace(before)
        self.end(outputs)
        return outputs

    def begin(self, instance: WorkflowInstance, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """A turn begins."""
        del instance
        return deliveries

    def end(self, outputs: Sequence[Any]) -> None:
        """A turn has ended."""

    def saw(self, spot: Spot, frame: FrameType, arg: Any) -> Any:
        """User code has come to a spot; what is returned traces the frame from now on, if it is not None."""
        raise NotImplementedError

    def _call(self, frame: FrameType, kind: str, arg: Any) -> Any:
        """Python tells of each frame that begins or goes on."""
        if frame not in self.user or frame.f_code.co_name == "<module>" or self.user.is_condition(frame):
            return None
        return self._local(frame, kind, arg)

    def _local(self, frame: FrameType, kind: str, arg: Any) -> Any:
        if kind == "opcode" or (kind == "exception" and _is_internal(frame, arg)):
            return self._local
        key = (kind, frame.f_code, frame.f_lineno)
        self._counts[key] += 1
        return self.saw(Spot(self._turn, *key, self._counts[key]), frame, arg) or self._local


def is_turn(frame: FrameType) -> bool:
    """Whether a frame is the runtime's that begins a turn."""
    return frame.f_code is WorkflowInstance._turn.__code__


def _is_internal(frame: FrameType, arg: Any) -> bool:
    """Whether an exception is how an ``await`` gets its result; pdb does not show it either."""
    return arg[0] is StopIteration and arg[2] is None and bool(frame.f_code.co_flags & _SUSPENDS)


def returns(frame: FrameType) -> bool:
    """Whether a frame that Python tells the end of has returned; else it waits, or raises."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")


class _Noted(Delivery):
    """A delivery that says when the code gets it."""

    note: Callable[[int], None]

    @property
    def event(self) -> ev.Event:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.note(self[0])
        return self[1]


class _Seen(NamedTuple):
    """The last thing that user code did."""

    spot: Spot
    caller: FrameType | None


class Scout(Tracer):
    """Looks for the spot of an event.

    Attributes:
        spot: Where to stop.
        is_late: No code has run because of the event; the spot is where code runs next.
        was_there: The turn of the event has run.
    """

    def __init__(self, target: Target, user: UserCode) -> None:
        super().__init__(user)
        self.spot: Spot | None = None
        self.is_late = False
        self.was_there = False
        self._target = target
        self._is_armed = False
        self._first_of: frozenset[CodeType] | None = None
        self._pending: Spot | None = None
        self._instance: WorkflowInstance | None = None
        self._seen: _Seen | None = None
        self._newest: dict[FrameType, Spot] = {}

    def wants(self, deliveries: Sequence[Delivery]) -> bool:
        """See ``Tracer``."""
        return self.spot is None and (self.was_there or deliveries[0].number == self._target.turn)

    def begin(self, instance: WorkflowInstance, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """See ``Tracer``."""
        self._instance = instance
        self._seen = None
        self._newest.clear()
        self.is_late = self.was_there
        self.was_there = True
        target = self._target
        if self.is_late:
            self._is_armed = True
            return deliveries
        if target.output is not None or len(deliveries) == 1:
            self._is_armed = target.output is None
            return deliveries
        if type(target.event) is ev.WorkflowStarted:
            # Messages that came before run began are handled in between.
            definition = instance._definition
            made = getattr(definition.cls.__init__, "__code__", None)
            self._first_of = frozenset([definition.run.__code__, *([made] if made else [])])
            self._is_armed = True
            return deliveries
        self._is_armed = deliveries[0].number == target.number
        noted = []
        for delivery in deliveries[1:]:
            each = _Noted(*delivery)
            each.note = self._note
            noted.append(each)
        return [deliveries[0], *noted]

    def _note(self, number: int) -> None:
        self._is_armed = number == self._target.number

    def end(self, outputs: Sequence[Any]) -> None:
        """See ``Tracer``."""
        self.spot = self.spot or self._pending
        place = self._target.output
        if self.spot is None and not self.is_late and place is not None and len(outputs) > place:
            self.spot = self._decider()
        self._newest.clear()
        self._seen = None

    def gave_up(self) -> None:
        """The turn has ended with an error: the last code of it is the nearest there is."""
        if self.spot is None and self._seen is not None:
            self.spot = self._pending or self._seen.spot

    def saw(self, spot: Spot, frame: FrameType, arg: Any) -> Any:
        """See ``Tracer``."""
        del arg
        if self.spot is not None:
            return None
        if self._is_armed:
            self._look(spot, frame)
        elif not self.is_late and self._target.output is not None:
            assert self._instance is not None
            if len(self._instance._outputs) > self._target.output:
                self.spot = self._decider()
        self._newest[frame] = spot
        self._seen = _Seen(spot, self.user.caller(frame))
        return None

    def _look(self, spot: Spot, frame: FrameType) -> None:
        """The first code after the delivery: a line, or a coroutine that goes on in the middle of one."""
        if self._first_of is not None and frame.f_code not in self._first_of:
            return
        if spot.kind == "call":
            self._pending = spot if frame.f_lasti > 0 and spot.line != frame.f_code.co_firstlineno else None
        elif spot.kind == "return" and self._pending is not None and not returns(frame):
            self.spot = self._pending  # it has gone on, and waits again in the same line
        else:
            self.spot = spot

    def _decider(self) -> Spot | None:
        """What user code did before the event was decided: where it calls, or its end."""
        seen = self._seen
        if seen is None:
            return None
        if seen.spot.kind == "return" and seen.caller is not None:  # it was called in the line that decides
            return self._newest.get(seen.caller, seen.spot)
        return seen.spot


class Stopper(Tracer):
    """Calls back at a spot.

    Attributes:
        was_there: It has.
    """

    def __init__(self, spot: Spot, user: UserCode, stop: Callable[[FrameType, str, Any], Any]) -> None:
        super().__init__(user)
        self.was_there = False
        self._spot = spot
        self._stop = stop

    def wants(self, deliveries: Sequence[Delivery]) -> bool:
        """See ``Tracer``."""
        return not self.was_there and deliveries[0].number == self._spot.turn

    def saw(self, spot: Spot, frame: FrameType, arg: Any) -> Any:
        """See ``Tracer``."""
        if self.was_there or spot != self._spot:
            return None
        self.was_there = True
        return self._stop(frame, spot.kind, arg)
