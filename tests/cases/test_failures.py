"""Chapter C: what code raises ends a run or stands still where people see it; nothing is tried again in silence."""

import asyncio
from datetime import timedelta

import pytest

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import (
    ActivityError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment


@activity.defn
async def work(number: int) -> int:
    raise NotImplementedError


@pytest.mark.parametrize("on_crash", ["quarantine", "fail"])
async def test_c01_an_ordinary_exception_ends_in_a_state_that_people_see(on_crash):
    @workflow.defn(on_crash=on_crash)
    class Raises:
        @workflow.run
        async def run(self) -> None:
            raise ValueError("a mistake")

    async with TestEnvironment(workflows=[Raises]) as env:
        handle = await env.spawn(Raises, id="raises")
        error = WorkflowQuarantinedError if on_crash == "quarantine" else WorkflowFailedError
        with pytest.raises(error, match="a mistake"):
            await handle.result(timeout=timedelta(seconds=30))
        described = await handle.describe()
        assert described.status == ("quarantined" if on_crash == "quarantine" else "failed")
        assert env.now() - env.clock.now() == timedelta(0)


@workflow.defn
class Limited:
    def __init__(self) -> None:
        self.flag = False

    @workflow.run
    async def run(self, catches: bool) -> str:
        try:
            await workflow.wait_condition(lambda: self.flag, timeout=3600)
        except TimeoutError:
            if not catches:
                raise
            await workflow.wait_condition(lambda: self.flag)
            return "late"
        return "in time"

    @workflow.signal
    def set(self) -> None:
        self.flag = True


async def test_c02_a_timeout_that_nobody_catches_fails_the_run():
    async with TestEnvironment(workflows=[Limited]) as env:
        with pytest.raises(WorkflowFailedError, match="TimeoutError"):
            await env.execute(Limited, False)


async def test_c02_a_condition_that_comes_true_after_its_limit_is_harmless():
    async with TestEnvironment(workflows=[Limited]) as env:
        handle = await env.spawn(Limited, True)
        await env.sleep(3601)
        await handle.signal(Limited.set)
        assert await handle.result() == "late"


def unregistered():
    @workflow.defn
    class Gone:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.go)
            return "here"

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

    return Gone


async def test_c07_c08_a_run_without_its_type_says_so_and_the_others_and_it_go_on():
    gone = unregistered()
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[gone, Limited], journal=journal) as env:
        for number in range(10):
            if number == 2:
                await env.spawn(gone, id="gone")
            else:
                await env.spawn(Limited, True, id=f"l{number}")
    async with TestEnvironment(workflows=[Limited], journal=journal) as env:
        for number in range(10):
            if number != 2:
                await env.ref(f"l{number}", Limited).signal(Limited.set)
                assert await env.ref(f"l{number}").result() == "in time"
        with pytest.raises(WorkflowHeldError, match="not registered with this runtime; known: Limited"):
            await env.ref("gone").result()
    async with TestEnvironment(workflows=[gone], journal=journal) as env:
        await env.ref("gone", gone).signal("proceed")
        assert await env.ref("gone").result() == "here"


class Refused(Exception):
    """Its constructor takes what no ``args`` have."""

    def __init__(self, *, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


async def test_c09_an_exception_with_a_constructor_of_its_own_is_one_failure_live_and_on_replay():
    @workflow.defn
    class Catches:
        @workflow.run
        async def run(self) -> list[str]:
            try:
                await workflow.execute_activity(work, 1, retry_policy=RetryPolicy(maximum_attempts=1))
            except ActivityError as error:
                assert error.caused_by(Refused)
                cause = error.__cause__
                await workflow.sleep(1)
                return [getattr(cause, "type", type(cause).__name__), str(error.__cause__)]
            return []

    async with TestEnvironment(workflows=[Catches]) as env:
        env.mock_activity(work, raises=Refused(code=7, reason="no"))
        handle = await env.spawn(Catches)
        live = await handle.result()
        assert live == ["Refused", "7: no"] or "7: no" in live[1]
        assert (await handle.describe()).status == "completed"
        await env.restart()
        assert await handle.result() == live


@pytest.mark.parametrize(
    ("listed", "tries"),
    [
        ([LookupError], 1),
        ([KeyError], 1),
        ([ValueError], 3),
        (["KeyError"], 1),
        (["builtins.KeyError"], 1),
    ],
)
async def test_c12_types_that_are_not_retried_match_as_people_think(listed, tries):
    @workflow.defn
    class Tries:
        @workflow.run
        async def run(self, only: bool) -> None:
            policy = RetryPolicy(maximum_attempts=3, non_retryable_error_types=listed)
            if only:
                policy = RetryPolicy(maximum_attempts=3, retry_on=listed)
            await workflow.execute_activity(work, 1, retry_policy=policy)

    async with TestEnvironment(workflows=[Tries]) as env:
        failing = env.mock_activity(work, raises=KeyError("x"))
        with pytest.raises(WorkflowFailedError):
            await env.execute(Tries, False)
        assert failing.call_count == tries
        with pytest.raises(WorkflowFailedError):
            await env.execute(Tries, True)
        assert failing.call_count == tries + (4 - tries)


@pytest.mark.parametrize("failing", [1, 2])
async def test_c14_a_fan_out_behind_a_step_that_was_tried_again_wakes(failing):
    @workflow.defn
    class FansOut:
        @workflow.run
        async def run(self) -> list[int]:
            first = await workflow.execute_activity(work, 0, start_to_close_timeout=10)
            return [first, *await asyncio.gather(*(work(number) for number in range(1, 6)))]

    async with TestEnvironment(workflows=[FansOut]) as env:
        calls = 0

        @env.mock_activity(work)
        async def _(number: int) -> int:
            nonlocal calls
            calls += 1
            if calls <= failing:
                if calls == 1:
                    await env.sleep(60)  # past its limit: what it returns then is refused
                raise ApplicationError("once more")
            return number

        assert await env.execute(FansOut) == [0, 1, 2, 3, 4, 5]
