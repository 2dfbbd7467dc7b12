"""What ``@workflow.step`` makes of a method: its name and its options, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

from ..journal.events import RetryRecord
from .call_codec import CallCodec
from .errors import RegistrationError
from .options import RetryPolicy, positive_count, positive_microseconds

#: Stands for an option that was not given, where None is a value.
UNSET: Any = object()
#: Attribute of an activity with its definition, as of ``definitions``, which builds on this module.
_ACTIVITY = "__everact_definition__"
#: Attribute of a step's function with its definition.
STEP = "__everact_step__"


class StepOptions(TypedDict, total=False):
    """Options of ``@workflow.step(...)``.

    Attributes:
        name: Its name in the journal; default the method's.
        retry: When and how often the body is repeated after a failure: a ``RetryPolicy``, or a number of attempts with
            the waits of ``RetryPolicy()``. Default: not at all, as activities have retries of their own.
        timeout: Limit of the whole step, all attempts and the waits between them, a timedelta or seconds, more than
            zero. Then the body is cancelled, and the step ends as ``on_timeout`` says, or with a TimeoutError.
        on_timeout: A method of the class, called with the step's arguments, whose result is the step's; or that result.
        on_error: A method of the class, called with the error and the step's arguments, whose result is the step's. It
            is called when the body has failed for good.
        optional: A step that has failed for good gives None, and the run goes on.
        compensate: Undoes the step when the saga fails in whose block it was called: an activity, the name of one, a
            method of the class, or a function. It gets the step's result; a method or function without parameters
            gets nothing.
    """

    name: str | None
    retry: RetryPolicy | int
    timeout: timedelta | float | None
    on_timeout: Any
    on_error: Callable[..., Any] | None
    optional: bool
    compensate: Callable[..., Any] | str | None


class StepDefinition:
    """One step of a workflow class.

    Attributes:
        name: How the journal knows it.
        fn: The user's method.
        codec: Encodes its arguments and its result.
        retry: Its policy, if it has one.
        timeout: Microseconds; 0 is none.
        on_timeout: A method, or a value; ``UNSET`` is neither.
        on_error: A method, if there is one.
        optional: A failure gives None.
        compensate: What undoes it, if there is anything.
    """

    __slots__ = (
        "codec",
        "compensate",
        "fn",
        "has_retry",
        "name",
        "on_error",
        "on_timeout",
        "optional",
        "retry",
        "timeout",
    )

    def __init__(self, fn: Callable[..., Any], name: str, options: dict[str, Any]) -> None:
        """Check the options.

        Raises:
            RegistrationError: One does not fit.
        """
        self.fn = fn
        self.name = name
        label = f"@workflow.step on {fn.__qualname__}"
        unknown = options.keys() - StepOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(sorted(StepOptions.__annotations__))
            raise RegistrationError(f"{label}: unknown option {min(unknown)!r}; known: {known}")
        self.codec = CallCodec(fn, f"step {name}", skip_first=True)
        retry = options.get("retry")
        timeout = options.get("timeout")
        try:
            self.has_retry, self.retry = _retry(retry)
            self.timeout = 0 if timeout is None else positive_microseconds("timeout", timeout)
        except (TypeError, ValueError) as error:
            raise RegistrationError(f"{label}: {error}") from error
        self.optional = options.get("optional", False)
        if not isinstance(self.optional, bool):
            raise RegistrationError(f"{label}: optional must be True or False, not {self.optional!r}")
        self.on_timeout = options.get("on_timeout", UNSET)
        if self.on_timeout is not UNSET and not self.timeout:
            raise RegistrationError(f"{label}: on_timeout is given without a timeout")
        if callable(self.on_timeout):
            _check_takes(
                self.on_timeout, self.codec, f"{label}: on_timeout", "self and the step's parameters"
            )
        self.on_error = options.get("on_error")
        if self.on_error is not None:
            what = "self, the error and the step's parameters"
            _check_takes(self.on_error, self.codec, f"{label}: on_error", what, more=1)
        self.compensate = options.get("compensate")
        if self.compensate is not None and not (
            callable(self.compensate) or isinstance(self.compensate, str)
        ):
            raise RegistrationError(
                f"{label}: compensate must be an activity, the name of one, a method or a function, not "
                f"{self.compensate!r}"
            )

    def bind(self, cls: type[Any]) -> None:
        """Resolve annotations that name what is in the class."""
        self.codec = CallCodec(self.fn, f"step {self.name}", skip_first=True, cls=cls)

    def compensation(self, obj: Any, result: Any) -> tuple[Any, tuple[Any, ...]]:
        """What undoes the step, and its arguments."""
        undo = self.compensate
        if isinstance(undo, str) or hasattr(undo, _ACTIVITY):
            return undo, (result,)
        assert undo is not None
        if inspect.isfunction(undo) and inspect.getattr_static(type(obj), undo.__name__, None) is undo:
            undo = undo.__get__(obj)
        return undo, (result,) if inspect.signature(undo).parameters else ()


def _retry(retry: Any) -> tuple[bool, RetryRecord | None]:
    if retry is None:
        return False, None
    if isinstance(retry, RetryPolicy):
        return True, retry.to_record()
    attempts = positive_count("retry", retry) if isinstance(retry, int) else None
    if attempts is None:
        raise TypeError(f"retry must be a RetryPolicy or a number of attempts, not {retry!r}")
    return True, RetryPolicy(maximum_attempts=attempts).to_record()


def _check_takes(fn: Any, step: CallCodec, label: str, what: str, *, more: int = 0) -> None:
    """Whether a method can be called as the step is, with so many parameters before its own."""
    fits = inspect.isfunction(fn) and not inspect.isgeneratorfunction(fn)
    if fits:
        hints = CallCodec(fn, label, skip_first=True).hints
        most = None if step.hints.maximum is None else step.hints.maximum + more
        fits = not hints.required_keywords and hints.required <= step.required + more
        fits = fits and (hints.maximum is None or (most is not None and hints.maximum >= most))
    if not fits:
        names = ", ".join(step.names)
        name = getattr(fn, "__qualname__", None) or repr(fn)
        raise RegistrationError(
            f"{label} must be a method that takes {what} ({names}), which {name} is not; put it above the "
            f"step in its class, and give its name without quotes"
        )
