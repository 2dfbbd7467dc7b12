"""The pytest plugin: options, marks and fixtures; pytest loads it by its entry point.

It is loaded wherever Everact is installed, so it imports the engine only for tests that use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .testing import ActivityEnvironment, TestEnvironment

__all__ = ["everact_activity_env", "everact_env", "everact_options", "pytest_addoption"]

#: Modules of Everact begin like this.
_PREFIX = f"{__package__}."
_NOT_AWAITED = "ActivityEnvironment.run"
_WRITE = "write `async with everact_env(workflows=[...], activities=[...]) as env:` and use"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("everact")
    group.addoption(
        "--everact-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of the test environments of everact_env: ids of runs, random numbers, jitter (default 0)",
    )
    group.addoption(
        "--everact-frames",
        action="store_true",
        help="show the lines of Everact itself in the tracebacks of failed tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    # A test that is no async def would pass without having run its activity. Python warns where nothing can be
    # raised; pytest makes a second warning of that.
    for filtered in (
        f"error:coroutine '{_NOT_AWAITED}' was never awaited:RuntimeWarning",
        rf"error:(?s).*coroutine object {_NOT_AWAITED}:pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", filtered)
    config.addinivalue_line(
        "markers",
        "chaos(seeds=20, count=4, faults=None, delay=1.0): run the test once, then once for each seed with so many "
        "faults: crashes, failed commits, messages that come twice or late, late results",
    )
    config.addinivalue_line(
        "markers",
        "crash_everywhere(points='*', limit=200): run the test once, then once for each fault point that its "
        "TestEnvironment passes, which dies there and goes on",
    )
    config.addinivalue_line(
        "markers",
        "kill_everywhere(points='*', limit=100): run the test in a process of its own, then once more for each fault "
        "point that it passes, where it is killed by SIGKILL and begins again on the same journal",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Let a marked test be run many times; how it is run stays as it is."""
    if not any(any(item.iter_markers(name)) for name in ("crash_everywhere", "kill_everywhere", "chaos")):
        return
    from .testing.marked_tests import marked  # noqa: PLC0415  (it imports the engine)

    instead = marked(item)
    if instead is not None:
        item.runtest = instead  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Leave Everact's own frames out of what a failed test shows: its line is what matters."""
    if call.excinfo is not None and not item.config.getoption("--everact-frames"):
        for trace in _traces(call.excinfo.value):
            module = trace.tb_frame.f_globals
            if str(module.get("__name__")).startswith(_PREFIX):
                module.setdefault("__tracebackhide__", _is_told)


def _traces(error: BaseException | None) -> Iterator[TracebackType]:
    """The frames of an exception and of all that belong to it."""
    seen: set[int] = set()
    rest = [error]
    while rest:
        error = rest.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        trace = error.__traceback__
        while trace is not None:
            yield trace
            trace = trace.tb_next
        rest += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]


def _is_told(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether an exception says by itself what is wrong; where it may be a bug of Everact, its frames are shown."""
    error = excinfo.value
    ours = sys.modules[f"{_PREFIX}journal.errors"].EveractError
    return isinstance(error, (ours, AssertionError, TypeError, ValueError))


@pytest.fixture
def everact_options() -> dict[str, Any]:
    """What all environments of ``everact_env`` have: override it in a conftest.py; arguments of a test win."""
    return {}


class _Environments:
    """What ``everact_env`` is: called, it makes a test environment."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def __call__(self, **options: Any) -> TestEnvironment:
        from .testing import TestEnvironment  # noqa: PLC0415

        return TestEnvironment(**{**self._options, **options})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"everact_env makes test environments, and has no {name!r} itself: {_WRITE} env.{name}"
            )

        async def __aenter__(self) -> Any:
            raise TypeError(f"everact_env makes test environments, and is none itself: {_WRITE} env")

        async def __aexit__(self, *_error: object) -> None:
            """Python looks for it before it enters."""


@pytest.fixture
def everact_env(
    everact_options: dict[str, Any], request: pytest.FixtureRequest
) -> Callable[..., TestEnvironment]:
    """Test environments with the options of ``everact_options`` and the seed of the command line.

    ``async with everact_env(workflows=[...], activities=[...]) as env:``
    """
    seed = int(request.config.getoption("--everact-seed") or 0)
    return _Environments({"seed": seed, **everact_options})


@pytest.fixture
def everact_activity_env() -> ActivityEnvironment:
    """An ``ActivityEnvironment``."""
    from .testing import ActivityEnvironment  # noqa: PLC0415

    return ActivityEnvironment()
