"""Assertions about what a run has done: matchers of events, in order, counted, absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import EllipsisType
from typing import Any, NoReturn, Self, TypeGuard

from ..journal import child_events as ce
from ..journal import events as ev
from ..journal import step_events as se
from ..journal.errors import EveractError
from ..journal.failures import Failure
from ..journal.payloads import Payload, PayloadConverter
from .declared_names import declared_name
from .history_sources import HistoryLike, StoredHistory, history_of
from .history_text import event_lines

__all__ = ["EventMatcher", "HistoryAssertion", "assert_history"]

#: Any value; also what a matcher that was given nothing compares with.
_ANY: EllipsisType = ...
_KINDS: dict[str, type[ev.Event]] = {cls.__name__: cls for cls in ev.AnyEvent.__args__}
#: Fields that hold the name of something declared.
_NAMES = ("name", "activity_type", "workflow_type", "compensation")
#: Lines of the history that a failure shows before and behind the place.
_SHOWN = 40
_converter = PayloadConverter()


class EventMatcher:
    """Matches events of one kind by some of their fields.

    A field is compared as the value that it stands for: ``args`` and ``result`` decoded, ``failure`` by its class or
    the name of that (also of a base class, or of a cause), a duration as a timedelta. A function is called with the
    value, and with ``"Type: message"`` of a failure, and says whether it is right. ``...`` matches all. For a name, the
    activity, workflow class, handler or step itself will do.
    """

    def __init__(self, kind: str, /, **fields: object) -> None:
        """Say what is looked for.

        Args:
            kind: Name of the event, such as ``"MemoUpserted"``.
            fields: Fields of the event by their names, as ``history_text`` shows them; and ``name``: of the activity,
                child type, step, signal or update that the event is about.

        Raises:
            ValueError: There is no such event, or it has no such field; or a name is of something dynamic.
            TypeError: A name is of a class that is no workflow.
        """
        cls = _KINDS.get(kind)
        if cls is None:
            raise ValueError(f"there is no event {kind!r}; there are: {', '.join(sorted(_KINDS))}")
        known = {*cls.__struct_fields__, "name"}
        for name in fields:
            if name not in known:
                raise ValueError(
                    f"the event {kind} has no field {name!r}; it has: {', '.join(sorted(known))}"
                )
        self.kind = kind
        self.fields = {
            name: _named(kind, name, value) if name in _NAMES else value
            for name, value in fields.items()
            if value is not _ANY
        }

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.fields.items())})"

    def matches(self, event: ev.Event, name: str = "") -> bool:
        """Whether an event is such a one.

        Args:
            event: The event.
            name: Of what it is about.
        """
        if type(event).__name__ != self.kind:
            return False
        told = ev.event_fields(event)
        told.setdefault("name", name)
        return all(_is(told[field], wanted) for field, wanted in self.fields.items())


def _named(kind: str, field: str, value: object) -> object:
    """A name, also of what is declared under it."""
    name = declared_name(value)
    if isinstance(name, type):
        raise TypeError(
            f"{kind}: {field} is a name, an activity or a workflow class, and {name.__qualname__} is none"
        )
    return name


def _matcher(call: str, given: object) -> EventMatcher:
    """What a call of an assertion was given; the class alone is any such event."""
    if isinstance(given, EventMatcher):
        return given
    if isinstance(given, type) and issubclass(given, EventMatcher) and given is not EventMatcher:
        cls: Any = given  # each has arguments of its own, all optional
        matcher: EventMatcher = cls()
        return matcher
    kind = given.__name__ if isinstance(given, type) else given
    meant = kind if isinstance(kind, str) and kind in _KINDS else "ActivityScheduled"
    raise TypeError(
        f"{call} takes a matcher of everact.testing, such as {meant}() or EventMatcher({meant!r}), not {given!r}"
    )


def _is(stored: Any, wanted: object) -> bool:
    """Whether a field of an event is what is wanted."""
    if isinstance(stored, Payload):
        return _is_value(stored, wanted)
    if isinstance(stored, Failure):
        return _is_failure(stored, wanted)
    if isinstance(stored, tuple) and all(isinstance(one, Payload) for one in stored):
        if _is_question(wanted):
            return _agrees([_converter.decode(one) for one in stored], wanted)
        return (
            isinstance(wanted, Sequence)
            and len(stored) == len(wanted)
            and all(map(_is_value, stored, wanted))
        )
    if isinstance(wanted, timedelta):
        wanted = wanted // timedelta(microseconds=1)
    if isinstance(stored, tuple) and isinstance(wanted, list):
        stored = list(stored)
    return _agrees(stored, wanted)


def _is_question(wanted: object) -> TypeGuard[Callable[[Any], object]]:
    """Whether it says itself what is right."""
    return callable(wanted) and not isinstance(wanted, type)


def _agrees(value: object, wanted: object) -> bool:
    return bool(wanted(value) if _is_question(wanted) else value == wanted)


def _is_value(stored: Payload, wanted: object) -> bool:
    if wanted is _ANY:
        return True
    try:
        if _agrees(_converter.decode(stored), wanted):
            return True
        return not _is_question(wanted) and bool(_converter.decode(stored, type(wanted)) == wanted)
    except EveractError:  # it is of another type
        return False


def _is_failure(stored: Failure, wanted: object) -> bool:
    """A class or its name means the failure or any in its chain of causes; a function gets ``Type: message``."""
    if _is_question(wanted):
        return bool(wanted(f"{stored.type}: {stored.message}"))
    name = wanted.__name__ if isinstance(wanted, type) else wanted
    return any(name in failure.names() for failure in stored.tree())


#: What assertions take.
Matcher = EventMatcher | type[EventMatcher]


class HistoryAssertion:
    """What ``assert_history`` gives: each call checks the history, and goes on where the one before has matched."""

    def __init__(self, history: StoredHistory) -> None:
        self._history = history
        self._events = [event for _at, record in history.records for event in ev.events_of(record)]
        self._names = list(_names(self._events))
        self._place = 0
        self._matched: list[EventMatcher] = []

    def has(self, matcher: Matcher, *, times: int | None = None) -> Self:
        """There is such an event, anywhere; what follows goes on behind the first one.

        Args:
            matcher: What is looked for; a class such as ``ActivityScheduled`` is any such event.
            times: There are exactly so many; None is one or more.

        Raises:
            AssertionError: There is none, or another number; with the history and a mark where the match ended.
            TypeError: It is no matcher.
        """
        matcher = _matcher("has", matcher)
        found = self._all(matcher, 0)
        if times is not None and len(found) != times:
            self._fail(f"there are {len(found)} events {matcher!r}, not {times}", found)
        if not found and times is None:
            self._fail(f"there is no event {matcher!r}", self._alike(matcher))
        if found:
            self._go_on(matcher, found[0])
        return self

    def then(self, matcher: Matcher) -> Self:
        """There is such an event behind the one that was matched last, not necessarily next to it.

        Raises:
            AssertionError: There is none; with the history and a mark where the match ended.
        """
        matcher = _matcher("then", matcher)
        found = self._all(matcher, self._place)
        if not found:
            before = f" behind event {self._place}, {self._matched[-1]!r}" if self._matched else ""
            self._fail(
                f"there is no event {matcher!r}{before}", self._all(matcher, 0) or self._alike(matcher)
            )
        self._go_on(matcher, found[0])
        return self

    def never(self, matcher: Matcher) -> Self:
        """There is no such event, anywhere.

        Raises:
            AssertionError: There is one; with the history and a mark there.
        """
        matcher = _matcher("never", matcher)
        found = self._all(matcher, 0)
        if found:
            self._fail(f"there is an event {matcher!r}, event {found[0] + 1}", found)
        return self

    def then_never(self, matcher: Matcher) -> Self:
        """There is no such event behind the one that was matched last.

        Raises:
            AssertionError: There is one; with the history and a mark there.
        """
        matcher = _matcher("then_never", matcher)
        found = self._all(matcher, self._place)
        if found:
            self._fail(
                f"there is an event {matcher!r} behind event {self._place}: event {found[0] + 1}", found
            )
        return self

    def count(self, matcher: Matcher) -> int:
        """How many such events there are."""
        return len(self._all(_matcher("count", matcher), 0))

    def _all(self, matcher: EventMatcher, start: int) -> list[int]:
        return [
            place
            for place in range(start, len(self._events))
            if matcher.matches(self._events[place], self._names[place])
        ]

    def _alike(self, matcher: EventMatcher) -> list[int]:
        """Events of the same kind, and about the same thing if there are some, which are not the right ones."""
        name = matcher.fields.get("name", _ANY)
        kind = EventMatcher(matcher.kind)
        return self._all(EventMatcher(matcher.kind, name=name), 0) or self._all(kind, 0)

    def _go_on(self, matcher: EventMatcher, place: int) -> None:
        self._place = place + 1
        self._matched.append(matcher)

    def _fail(self, text: str, marked: Sequence[int]) -> NoReturn:
        """Raise, with the history: ``=>`` is where the match ended, ``* `` is what the text is about."""
        lines = []
        for place, line in enumerate(event_lines(self._history)):
            mark = "=>" if place + 1 == self._place else " *" if place in marked else "  "
            lines.append(f"{mark} {line}")
        lines = _around(lines, [*marked, self._place - 1])
        raise AssertionError(
            f"{text}, in the history of {self._history.workflow_id!r} (=> matched last, * about this):\n"
            + "\n".join(lines)
        )


def _around(lines: list[str], places: Sequence[int]) -> list[str]:
    """Of a long history what is near to what matters."""
    if len(lines) <= _SHOWN:
        return lines
    middle = max(0, min(places, key=lambda place: (place < 0, place)))
    first = max(0, min(middle - _SHOWN // 2, len(lines) - _SHOWN))
    shown = lines[first : first + _SHOWN]
    if first:
        shown.insert(0, f"   ... {first} events before")
    if first + _SHOWN < len(lines):
        shown.append(f"   ... {len(lines) - first - _SHOWN} events behind")
    return shown


def _names(events: Sequence[ev.Event]) -> Iterator[str]:
    """What each event is about: the name of the activity, child type, step, signal or update."""
    commands: dict[int, str] = {}
    messages: dict[int, str] = {}
    for number, event in enumerate(events, 1):
        match event:
            case ev.ActivityScheduled():
                commands[event.command] = event.activity_type
            case ce.ChildScheduled() | ce.DetachedStart():
                commands[event.command] = event.start.workflow_type
            case ce.SignalSent() | se.StepStarted():
                commands[event.command] = event.name
            case ev.SignalReceived() | ev.UpdateReceived():
                messages[number] = event.name
            case ev.WorkflowStarted():
                commands[0] = event.workflow_type
            case _:
                pass
        if isinstance(event, (ev.WorkflowStarted, *ev.OUTCOMES)):
            yield commands.get(0, "")
        elif (command := getattr(event, "command", None)) is not None:
            yield commands.get(command, "")
        else:
            message = getattr(event, "update", getattr(event, "message", number))
            yield messages.get(message, "")


def assert_history(history: HistoryLike) -> HistoryAssertion:
    """Begin assertions about a history: ``assert_history(history).has(...).then(...).never(...)``.

    Args:
        history: What ``await handle.fetch_history()`` gave, an exported document, or the path of its file.

    Raises:
        TypeError: It is no history.
        ImportRefusedError: It is damaged.
    """
    found = history_of(history)
    if found.error is not None:
        raise found.error
    return HistoryAssertion(found)
