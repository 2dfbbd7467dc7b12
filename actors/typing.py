"""Protocols by which calls through references keep their parameter and return types under mypy and pyright."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, TypeVarTuple, overload

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
W = TypeVar("W")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
W_contra = TypeVar("W_contra", contravariant=True)
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])


class UpdateMethod(Protocol[W, P, R_co]):
    """A method declared with ``@workflow.update``; it also takes a validator."""

    def __call__(self, wf: W, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it as the plain method it is."""
        ...

    @overload
    def __get__(self, obj: None, owner: type[Any], /) -> UpdateMethod[W, P, R_co]: ...
    @overload
    def __get__(self, obj: object, owner: type[Any], /) -> Callable[P, R_co]: ...

    def validator(self, fn: Callable[Concatenate[W, P], None], /) -> Callable[Concatenate[W, P], None]:
        """Decorate the method that refuses bad calls by raising."""
        ...


class WorkflowClass(Protocol[W_contra, *Ts, R_co]):
    """A class declared with ``@workflow.defn``; matches the class object itself."""

    def run(self, wf: W_contra, /, *args: *Ts) -> Awaitable[R_co]:
        """The workflow's main."""
        ...


class ActivityHandle(Protocol[R_co]):
    """An activity that was started; await it for its result."""

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the result."""
        ...

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the activity in the way of its ``cancellation_type``."""
        ...

    def cancelled(self) -> bool:
        """Whether it has ended by being cancelled."""
        ...

    def done(self) -> bool:
        """Whether it has ended."""
        ...
