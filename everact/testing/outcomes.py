"""What a fake does at each call: results, failures, or code of the test; after how long."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from ..actors.activity import ActivityInfo, heartbeat
from ..actors.call_codec import CallCodec
from ..actors.definitions import ActivityDefinition
from ..actors.dynamic import DynamicCodec
from ..actors.errors import ApplicationError
from ..actors.options import each_of, microseconds
from ..journal.errors import PayloadEncodeError
from ..journal.payloads import PayloadConverter

#: What is given as an exception: an object, or a class that is called without arguments.
Raises = BaseException | type[BaseException]


class Unset:
    """An argument that was not given; None is a result like any other."""

    def __repr__(self) -> str:
        return "not given"


UNSET = Unset()


@dataclass(frozen=True)
class MockCall:
    """One call that a fake has got: one attempt.

    Attributes:
        args: The arguments given by position.
        kwargs: Those given by keyword.
        info: What the attempt knows of itself.
        at: The environment's time, UTC.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    info: ActivityInfo
    at: datetime

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self.info.attempt


class Host(Protocol):
    """What fakes need of their environment."""

    def now(self) -> datetime:
        """Its time."""
        ...

    async def sleep(self, duration: timedelta | float) -> None:
        """Let its time pass."""
        ...


class Outcomes:
    """Checked when the fake is made, and taken at its calls."""

    def __init__(
        self,
        what: str,
        *,
        returns: Any,
        raises: Raises | None,
        side_effect: Any,
        delay: timedelta | float,
        heartbeats: Sequence[Any],
    ) -> None:
        """Check what does not need the signature.

        Raises:
            TypeError: More than one of ``returns``, ``raises`` and ``side_effect`` is given, or one is nothing of the
                kind.
            ValueError: The delay is negative.
        """
        given = [
            name
            for name, value, none in (
                ("returns", returns, UNSET),
                ("raises", raises, None),
                ("side_effect", side_effect, None),
            )
            if value is not none
        ]
        if len(given) > 1:
            raise TypeError(
                f"the mock of {what} takes one of returns, raises and side_effect, not {' and '.join(given)}"
            )
        if raises is not None and not _is_error(raises):
            raise TypeError(f"raises of the mock of {what} must be an exception, not {raises!r}")
        self.what = what
        self.is_given = bool(given)
        self._delay = microseconds("delay", delay) / 1_000_000
        self._heartbeats = tuple(each_of("heartbeats", heartbeats))
        self._unfit = ""
        self._code: Callable[..., Any] | None = None
        self._by_call: list[Any] | None = None
        self._always: Any = None if returns is UNSET else returns
        self._raises = raises
        if callable(side_effect) and not _is_error(side_effect):
            self._code = side_effect
        elif side_effect is not None:
            if not isinstance(side_effect, Iterable) or isinstance(side_effect, str | bytes):
                raise TypeError(
                    f"side_effect of the mock of {what} must be a function, or a list with a result or exception for "
                    f"each call, not {side_effect!r}"
                )
            self._by_call = list(side_effect)

    def use(self, code: Callable[..., Any]) -> None:
        """Let a function of the test answer."""
        self._code = code
        self.is_given = True

    def check(self, definition: ActivityDefinition, converter: PayloadConverter) -> None:
        """Refuse what the real function could not return, and code that does not take its arguments.

        Raises:
            PayloadEncodeError: A result does not fit the return hint.
            TypeError: The code does not take what the function takes.
        """
        if self._code is not None:
            _check_signature(self._code, definition.codec, self.what)
        elif self._by_call is not None:
            for value in self._by_call:
                if not _is_error(value):
                    definition.codec.encode_result(converter, value)
        elif self._raises is not None:
            pass
        elif self.is_given:
            definition.codec.encode_result(converter, self._always)
        else:  # it may get a function as a decorator, or never be called
            try:
                definition.codec.encode_result(converter, None)
            except PayloadEncodeError as error:
                self._unfit = str(error)

    async def take(self, host: Host, number: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The outcome of call ``number``, from 1."""
        pause = self._delay / (len(self._heartbeats) + 1)
        for beat in self._heartbeats:
            if pause:
                await host.sleep(pause)
            heartbeat(*(beat if isinstance(beat, tuple) else (beat,)))
        if pause:
            await host.sleep(pause)
        if self._raises is not None:
            raise _error(self._raises)
        if self._code is not None:
            answer = self._code(*args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer
        if self._by_call is None:
            if not self.is_given and self._unfit:
                raise ApplicationError(
                    f"the mock of {self.what} has no result, and None is none for it ({self._unfit}): give it "
                    f"returns=..., raises=... or side_effect=...",
                    type="MockWithoutResult",
                    non_retryable=True,
                )
            return self._always
        if number > len(self._by_call):
            count = len(self._by_call)
            raise ApplicationError(
                f"the mock of {self.what} has outcomes for {count} {'call' if count == 1 else 'calls'}, and this is "
                f"call {number}: give side_effect a longer list, or a function",
                type="MockExhausted",
                non_retryable=True,
            )
        answer = self._by_call[number - 1]
        if _is_error(answer):
            raise _error(answer)
        return answer


def _is_error(value: object) -> bool:
    return isinstance(value, BaseException) or (isinstance(value, type) and issubclass(value, BaseException))


def _error(given: Raises) -> BaseException:
    return given() if isinstance(given, type) else given.with_traceback(None)


def _check_signature(code: Callable[..., Any], codec: CallCodec, what: str) -> None:
    if isinstance(codec, DynamicCodec):  # what it is called with, nobody has declared
        return
    try:
        signature = inspect.signature(code)
    except (TypeError, ValueError):  # a function of C that does not say
        return
    most = len(codec.names) if codec.hints.maximum is None else codec.hints.maximum
    for count in {codec.required, most}:
        try:
            signature.bind(*[None] * count, **dict.fromkeys(codec.hints.required_keywords))
        except TypeError as error:
            raise TypeError(
                f"the side_effect of the mock of {what} must take its arguments ({', '.join(codec.names)}): {error}"
            ) from None
