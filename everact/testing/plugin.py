"""The pytest plugin: options and fixtures; pytest loads it by its entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .activity_environment import ActivityEnvironment
from .environment import TestEnvironment
from .marked_tests import marked

__all__ = ["everact_activity_env", "everact_env", "everact_options", "pytest_addoption"]


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


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        "chaos(seeds=20, count=4, faults=None): run the test once, then once for each seed with so many faults: "
        "crashes, failed commits, messages that come twice or late, late results",
    )
    config.addinivalue_line(
        "markers",
        "crash_everywhere(points='*', limit=200): run the test once, then once for each fault point that its "
        "TestEnvironment passes, which dies there and goes on",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Let a marked test be run many times; how it is run stays as it is."""
    instead = marked(item)
    if instead is not None:
        item.runtest = instead  # type: ignore[method-assign]


@pytest.fixture
def everact_options() -> dict[str, Any]:
    """What all environments of ``everact_env`` have: override it in a conftest.py; arguments of a test win."""
    return {}


@pytest.fixture
def everact_env(
    everact_options: dict[str, Any], request: pytest.FixtureRequest
) -> Callable[..., TestEnvironment]:
    """Test environments with the options of ``everact_options`` and the seed of the command line.

    ``async with everact_env(workflows=[...], activities=[...]) as env:``
    """
    seed = int(request.config.getoption("--everact-seed") or 0)

    def make(**options: Any) -> TestEnvironment:
        given: dict[str, Any] = {"seed": seed, **everact_options, **options}
        return TestEnvironment(**given)

    return make


@pytest.fixture
def everact_activity_env() -> ActivityEnvironment:
    """An ``ActivityEnvironment``."""
    return ActivityEnvironment()
