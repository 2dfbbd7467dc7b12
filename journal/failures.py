"""Failures as plain data: what went wrong, with its chain of causes, never as pickled classes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import msgspec

from .errors import EveractError
from .payloads import Payload

#: Longest message and trace kept, and longest text made of a whole tree, in characters.
MESSAGE_LIMIT = 10_000
TRACE_LIMIT = 20_000
TEXT_LIMIT = 20_000
#: Deepest chain of causes and of groups in groups, most members of a group, and most errors in all, kept.
CAUSE_LIMIT = 20
GROUP_LIMIT = 50
FAILURE_LIMIT = 200

#: Modules whose lines say nothing to who reads where an error was raised.
_NOT_THEIRS = (__name__.partition(".")[0] + ".", "asyncio.")


class Failure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One error, readable by a process that cannot import its class.

    Attributes:
        type: The class's name without its module.
        bases: Full dotted names of the class and its base classes, nearest first, without ``object``.
        message: ``str(error)``, shortened to 10,000 characters.
        trace: The traceback as text, shortened in the middle.
        details: Values that the author attached.
        cause: What it was raised from.
        kind: ``application``, ``activity``, ``timeout``, ``cancelled``, ``lost``, ``child``, ``external``, ``refused``
            or ``crash``.
        non_retryable: The author said that trying again is useless.
        next_delay: Microseconds until the next attempt, as the author asked; -1 when not said.
        source: For kind ``activity``, ``timeout`` and ``lost``: what failed, ``(activity type, command, attempt)``.
        group: Members of an exception group.
        retry_state: For kind ``activity``: why there was no further attempt. For ``timeout``: the limit's name.
        coded: Message and trace as the payload codecs have left them; those two are then empty.
        run: For kind ``child`` and ``external``: which run it was, ``(workflow id, run id, type, status)``.
    """

    type: str
    bases: tuple[str, ...] = ()
    message: str = ""
    trace: str = ""
    details: tuple[Payload, ...] = ()
    cause: Failure | None = None
    kind: str = "application"
    non_retryable: bool = False
    next_delay: int = -1
    source: tuple[str, int, int] | None = None
    group: tuple[Failure, ...] = ()
    retry_state: str = ""
    coded: Payload | None = None
    run: tuple[str, str, str, str] | None = None

    def names(self) -> frozenset[str]:
        """Every name by which a user may mean this failure: bare and dotted, of the class and its bases."""
        return frozenset([self.type, *self.bases, *(b.rpartition(".")[2] for b in self.bases)])

    def tree(self) -> Iterator[Failure]:
        """This failure, its members and its causes."""
        yield self
        for inner in self.inner():
            yield from inner.tree()

    def inner(self) -> tuple[Failure, ...]:
        """Its members, and its cause if it has one."""
        return self.group if self.cause is None else (*self.group, self.cause)


def one_line(failure: Failure) -> str:
    """``Type: message``, without what is empty."""
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def full_text(failure: Failure) -> str:
    """A failure with its traces, its members and its chain of causes, for logs and people; shortened."""
    parts: list[str] = []
    left = [("", failure)]
    while left:
        label, one = left.pop()
        parts.append(label + (one.trace.rstrip() or one_line(one)))
        if one.cause is not None:
            left.append(("caused by: ", one.cause))
        members = [(f"member {number}: ", member) for number, member in enumerate(one.group, 1)]
        left += reversed(members)
    return shorten("\n".join(parts), TEXT_LIMIT)


def class_names(cls: type[BaseException]) -> tuple[str, ...]:
    """Full dotted names of a class and its bases, nearest first, without ``object``."""
    return tuple(clean(f"{c.__module__}.{c.__qualname__}") for c in cls.__mro__ if c is not object)


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text that is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - limit} characters left out ...\n{text[-half:]}"


def raised_at(error: BaseException) -> str:
    """Where an error was raised, for one that says nothing else; empty when that is unknown.

    That is the program's own line, also where asyncio or Everact raises: when ``asyncio.timeout`` has passed.
    """
    places = [(frame.f_code, line, frame.f_globals) for frame, line in traceback.walk_tb(error.__traceback__)]
    if not places:
        return ""
    theirs = [place for place in places if not str(place[2].get("__name__")).startswith(_NOT_THEIRS)]
    code, line, _ = (theirs or places)[-1]
    return f"raised at {code.co_filename}:{line} in {code.co_name}"


def format_trace(error: BaseException) -> str:
    """The traceback of this error alone (causes are kept apart), shortened; our own frames are left out.

    It is empty for an error that was raised on purpose, and with no frame but our own: the message says all.
    """
    try:
        # A set of "seen" errors is what keeps it from reading the whole tree of causes, which may be huge.
        report = traceback.TracebackException(
            type(error), error, error.__traceback__, max_group_width=0, _seen=set()
        )
        report.__cause__ = report.__context__ = None
        report.exceptions = None
        ours = [
            str(frame.f_globals.get("__name__")).partition(".")[0] == "everact"
            for frame, _line in traceback.walk_tb(error.__traceback__)
        ]
        if all(ours) and isinstance(error, EveractError):
            return ""
        if not all(ours):
            kept = [summary for summary, own in zip(report.stack, ours, strict=False) if not own]
            report.stack = traceback.StackSummary.from_list(kept)
        return shorten(clean("".join(report.format(chain=False))), TRACE_LIMIT)
    except Exception:  # noqa: BLE001  (notes, names, module globals: a user's objects may do anything)
        return ""


def safe_message(error: BaseException) -> str:
    """``str(error)``, also when that raises."""
    try:
        return shorten(clean(str(error)), MESSAGE_LIMIT)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001  (a user's __str__ may do anything)
        return f"<its __str__ raised {clean(type(broken).__name__)}>"


def clean(text: str) -> str:
    """Replace lone surrogates, which cannot be stored as UTF-8; a user's own kind of string becomes a plain one."""
    return str.encode(text, "utf-8", "replace").decode("utf-8")
