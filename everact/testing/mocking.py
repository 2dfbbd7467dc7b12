"""What a test environment offers for fakes, typed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from ..actors.typing import Ts, W, WorkflowClass
from .mocks import ActivityMock, Mocks, WorkflowMock
from .outcomes import UNSET, Raises

R = TypeVar("R")


class Mocking:
    """Fakes of activities and of child workflows; a part of ``TestEnvironment``."""

    _mocks: Mocks

    @overload
    def mock_activity(
        self,
        activity: Callable[..., Awaitable[R]],
        /,
        *,
        returns: R = ...,
        raises: Raises | None = None,
        side_effect: Callable[..., Any] | Iterable[Any] | None = None,
        delay: timedelta | float = 0,
        heartbeats: Sequence[Any] = (),
    ) -> ActivityMock[R]: ...
    @overload
    def mock_activity(
        self,
        activity: Callable[..., R],
        /,
        *,
        returns: R = ...,
        raises: Raises | None = None,
        side_effect: Callable[..., Any] | Iterable[Any] | None = None,
        delay: timedelta | float = 0,
        heartbeats: Sequence[Any] = (),
    ) -> ActivityMock[R]: ...
    @overload
    def mock_activity(
        self,
        activity: str,
        /,
        *,
        returns: Any = ...,
        raises: Raises | None = None,
        side_effect: Callable[..., Any] | Iterable[Any] | None = None,
        delay: timedelta | float = 0,
        heartbeats: Sequence[Any] = (),
    ) -> ActivityMock[Any]: ...
    def mock_activity(
        self,
        activity: Any,
        /,
        *,
        returns: Any = UNSET,
        raises: Raises | None = None,
        side_effect: Any = None,
        delay: timedelta | float = 0,
        heartbeats: Sequence[Any] = (),
        **unknown: Any,
    ) -> Any:
        """Put a fake in place of an activity: until the end of the environment, or of its own ``with`` block.

        Its attempts go through the real pool: arguments and results are checked and converted, failures are tried
        again, limits hold, and the journal has all of it. What a fake waits is virtual time.

        Args:
            activity: The function, or its name; it need not be registered.
            returns: The result of every call; None when nothing is given. An activity that cannot return None
                needs one of these three, or its calls fail.
            raises: An exception for every attempt.
            side_effect: A function that gets the arguments and returns the result, plain or async; or a list of what
                each attempt comes to, a result or an exception.
            delay: How long each attempt takes, a timedelta or seconds.
            heartbeats: Details of the heartbeats that each attempt sends, spread over its delay; a tuple is several
                details of one.
            **unknown: There is nothing else; it is refused.

        Returns:
            The fake: ``was_called``, ``call_count``, ``calls``. It is a decorator for its ``side_effect``, and a
            context manager.

        Raises:
            RegistrationError: It is no activity.
            TypeError: More than one outcome is given, or one does not fit the signature; a keyword is unknown.
            RuntimeClosedError: The environment was left.
            PayloadEncodeError: A result does not fit the return hint.
            ValueError: The delay is negative, or the activity dynamic.
        """
        _check_names("mock_activity", unknown, (*_OUTCOMES, "heartbeats"))
        outcomes = _outcomes(returns, raises, side_effect, delay, heartbeats)
        return self._mocks.add_activity(activity, outcomes)

    @overload
    def mock_workflow(
        self,
        workflow: Callable[[W, *Ts], Awaitable[R]],
        /,
        *,
        returns: R = ...,
        raises: Raises | None = None,
        side_effect: Callable[[*Ts], R | Awaitable[R]] | Iterable[R | Raises] | None = None,
        delay: timedelta | float = 0,
    ) -> WorkflowMock[R]: ...
    @overload
    def mock_workflow(
        self,
        workflow: WorkflowClass[W, *Ts, R],
        /,
        *,
        returns: R = ...,
        raises: Raises | None = None,
        side_effect: Callable[[*Ts], R | Awaitable[R]] | Iterable[R | Raises] | None = None,
        delay: timedelta | float = 0,
    ) -> WorkflowMock[R]: ...
    @overload
    def mock_workflow(
        self,
        workflow: str,
        /,
        *,
        returns: Any = ...,
        raises: Raises | None = None,
        side_effect: Callable[..., Any] | Iterable[Any] | None = None,
        delay: timedelta | float = 0,
    ) -> WorkflowMock[Any]: ...
    def mock_workflow(
        self,
        workflow: Any,
        /,
        *,
        returns: Any = UNSET,
        raises: Raises | None = None,
        side_effect: Any = None,
        delay: timedelta | float = 0,
        **unknown: Any,
    ) -> Any:
        """Put a fake in place of a workflow type, for parents that start it as their child, and for ``spawn``.

        It is a real run of that type, with an id and a history; its code is one call of the fake. It takes every
        signal, and does nothing with it. Arguments as of ``mock_activity``.

        Args:
            workflow: The class, its run method, or its type name; it need not be registered.
            returns: The result of every run; None when nothing is given.
            raises: The exception that every run fails with.
            side_effect: A function that gets the arguments and returns the result, plain or async; or a list of what
                each run comes to.
            delay: How long each run takes, a timedelta or seconds.
            **unknown: There is nothing else; it is refused.

        Raises:
            RegistrationError: It is no workflow.
            TypeError: As of ``mock_activity``, as for the other errors.
        """
        _check_names("mock_workflow", unknown, _OUTCOMES)
        return self._mocks.add_workflow(workflow, _outcomes(returns, raises, side_effect, delay, ()))


_OUTCOMES = ("returns", "raises", "side_effect", "delay")
#: What the same thing is called elsewhere.
_ELSEWHERE = {"return_value": "returns", "result": "returns", "error": "raises", "exception": "raises"}


def _check_names(call: str, unknown: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse keywords that there are not."""
    if unknown:
        name = min(unknown)
        meant = f" (here it is {_ELSEWHERE[name]}=)" if name in _ELSEWHERE else ""
        raise TypeError(f"{call} has no argument {name!r}{meant}; it takes {', '.join(known)}")


def _outcomes(
    returns: Any, raises: Any, side_effect: Any, delay: timedelta | float, heartbeats: Sequence[Any]
) -> dict[str, Any]:
    return {
        "returns": returns,
        "raises": raises,
        "side_effect": side_effect,
        "delay": delay,
        "heartbeats": heartbeats,
    }
