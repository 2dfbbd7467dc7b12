"""Time limits in workflow code: what is refused names the unit, and so does what is said when one has passed."""

from datetime import timedelta

import pytest
from support.hosting import hosted

from everact import workflow
from everact.journal.memory_store import MemoryJournal

PASS = "pass a number of seconds or a timedelta"


@workflow.defn
class Child:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


CALLS = {
    "wait_condition timeout": lambda limit: workflow.wait_condition(lambda: False, timeout=limit),
    "wait_for_signal timeout": lambda limit: workflow.wait_for_signal("x", timeout=limit),
    "sleep": lambda limit: workflow.sleep(limit),
}


@workflow.defn
class Limits:
    @workflow.run
    async def run(self, what: str, kind: str) -> str:
        limit = {
            "-1": -1,
            "nan": float("nan"),
            "text": "5s",
            "True": True,
            "ms": timedelta(microseconds=1500),
        }
        try:
            if what == "deadline":
                async with workflow.deadline(limit[kind]):
                    await workflow.wait_condition(lambda: False)
            elif what == "wait_for_children timeout":
                child = await workflow.start_child_workflow(Child, id="c", parent_close_policy="terminate")
                await workflow.wait_for_children([child], timeout=limit[kind])
            elif what == "wait_for_signal timeout":
                await workflow.wait_for_signal("x", timeout=limit[kind])
            else:
                await CALLS[what](limit[kind])
        except (TimeoutError, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"


WHAT = [*CALLS, "wait_for_children timeout", "deadline"]


@pytest.mark.parametrize("what", WHAT)
async def test_no_limit_at_all_is_refused_with_what_to_pass(what):
    async with hosted(MemoryJournal(), Limits, Child) as runtime:
        for kind, text in {
            "-1": f"ValueError: {what} must be between 0 and 100 years, not -1: {PASS}",
            "nan": f"ValueError: {what} must be between 0 and 100 years, not nan: {PASS}",
            "text": f"TypeError: {what} must be a timedelta or a number of seconds, not '5s'",
            "True": f"TypeError: {what} must be a timedelta or a number of seconds, not True",
        }.items():
            assert await runtime.execute(Limits.run, what, kind) == text


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("wait_condition timeout", "wait_condition: the condition did not hold within 0.0015 s"),
        ("wait_for_signal timeout", "wait_for_signal: no signal 'x' came within 0.0015 s"),
        (
            "wait_for_children timeout",
            "wait_for_children: 0 of 1 children have ended within 0.0015 s, 1 were waited for",
        ),
        ("deadline", "deadline: the block did not end within 0.0015 s"),
    ],
)
async def test_a_limit_that_has_passed_says_how_long_it_was(what, text):
    async with hosted(MemoryJournal(), Limits, Child) as runtime:
        assert await runtime.execute(Limits.run, what, "ms") == f"TimeoutError: {text}"
