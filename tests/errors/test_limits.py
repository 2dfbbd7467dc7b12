"""Durations, policies, options and words out of their range: what is refused says the option and its range."""

import asyncio
import math
from datetime import UTC, datetime, timedelta

import pytest
from support.bad_input import memory_runtime, nothing_written, refuses

from everact import RetryPolicy, activity, workflow

NO_DURATIONS = [-1, -0.001, math.nan, math.inf, -math.inf, 1e300, timedelta(seconds=-1), timedelta.max]
NO_TYPES = ["5", None, True, [], object()]


@activity.defn
async def charge() -> None:
    pass


@workflow.defn
class Waits:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def status(self) -> str:
        return "waiting"


# --- activities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [*NO_DURATIONS, 0, timedelta(0), 1e-9])
def test_start_to_close_timeout_in_a_declaration(wrong):
    with refuses(ValueError, "start_to_close_timeout must be", repr(wrong)):
        activity.defn(start_to_close_timeout=wrong)(charge.__wrapped__)


@pytest.mark.parametrize("wrong", NO_TYPES)
def test_start_to_close_timeout_of_another_type(wrong):
    with refuses(
        TypeError, "start_to_close_timeout must be a timedelta or a number of seconds, not", repr(wrong)
    ):
        activity.defn(start_to_close_timeout=wrong)(charge.__wrapped__)


async def test_options_at_the_call():
    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> None:
            for call in (
                workflow.execute_activity,
                workflow.start_activity,
                lambda fn, **options: workflow.execute_activity("charge", **options),
                workflow.with_options,
                workflow.execute_activity_method,
            ):
                for wrong in (*NO_DURATIONS, 0):
                    with refuses(ValueError, "start_to_close_timeout must be", repr(wrong)):
                        call(charge, start_to_close_timeout=wrong)
                for wrong in NO_TYPES:
                    with refuses(TypeError, "start_to_close_timeout must be a timedelta", repr(wrong)):
                        call(charge, start_to_close_timeout=wrong)
                with refuses(
                    TypeError,
                    "unknown activity option 'timeout'; known: cancellation_type, heartbeat_timeout, retry_policy, "
                    "schedule_to_close_timeout, schedule_to_start_timeout, start_to_close_timeout",
                ):
                    call(charge, timeout=5)
                with refuses(TypeError, "retry_policy must be a RetryPolicy, not 3"):
                    call(charge, retry_policy=3)
            with refuses(TypeError, "unknown activity option 'result_type'"):
                workflow.execute_activity(charge, result_type=int)  # everact: allow[EV203]

    async with memory_runtime([Calls], [charge]) as runtime:
        handle = await runtime.spawn(Calls)
        await handle.result()
        assert [e.kind for e in await handle.fetch_history()] == ["WorkflowStarted", "WorkflowCompleted"]


# --- retry policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["initial_interval", "maximum_interval"])
def test_intervals_of_a_retry_policy(name):
    for wrong in (*NO_DURATIONS, 0):
        with refuses(ValueError, f"RetryPolicy.{name} must be", repr(wrong)):
            RetryPolicy(**{name: wrong})
    for wrong in NO_TYPES:
        with refuses(
            TypeError, f"RetryPolicy.{name} must be a timedelta or a number of seconds", repr(wrong)
        ):
            RetryPolicy(**{name: wrong})


def test_other_fields_of_a_retry_policy():
    with refuses(ValueError, "RetryPolicy.maximum_interval is shorter than initial_interval"):
        RetryPolicy(initial_interval=timedelta(minutes=2))
    for wrong in (0, 0.99, -1, math.nan, math.inf):
        with refuses(ValueError, "RetryPolicy.backoff_coefficient must be 1 or more, not", repr(wrong)):
            RetryPolicy(backoff_coefficient=wrong)
    for wrong in (-0.1, 1.1, math.nan, math.inf):
        with refuses(ValueError, "RetryPolicy.jitter must be between 0 and 1, not", repr(wrong)):
            RetryPolicy(jitter=wrong)
    for name in ("backoff_coefficient", "jitter"):
        for wrong in ("2", None, True, []):
            with refuses(TypeError, f"RetryPolicy.{name} must be a number, not", repr(wrong)):
                RetryPolicy(**{name: wrong})
    for wrong in (-1, -10):
        with refuses(ValueError, "RetryPolicy.maximum_attempts must be 0 or more, not", repr(wrong)):
            RetryPolicy(maximum_attempts=wrong)
    for wrong in (1.0, "3", None, True, math.inf):
        with refuses(TypeError, "RetryPolicy.maximum_attempts must be an int, not", repr(wrong)):
            RetryPolicy(maximum_attempts=wrong)
    with refuses(ValueError, "RetryPolicy.maximum_attempts", "2**31"):
        RetryPolicy(maximum_attempts=10**30)
    with refuses(TypeError, "attempts"):
        RetryPolicy(attempts=3)


# --- waiting in a workflow --------------------------------------------------------------------------------------


async def true_some_time() -> bool:
    return True


async def test_durations_in_workflow_code():
    @workflow.defn
    class Sleeps:
        @workflow.run
        async def run(self) -> str:
            for wrong in NO_DURATIONS:
                with refuses(ValueError, "sleep must be between 0 and 100 years, not", repr(wrong)):
                    await workflow.sleep(wrong)
                with refuses(
                    ValueError, "wait_condition timeout must be between 0 and 100 years", repr(wrong)
                ):
                    await workflow.wait_condition(lambda: False, timeout=wrong)
            for wrong in NO_TYPES:
                with refuses(TypeError, "sleep must be a timedelta or a number of seconds, not", repr(wrong)):
                    await workflow.sleep(wrong)
            for wrong in ("5", True, []):
                with refuses(TypeError, "wait_condition timeout must be a timedelta", repr(wrong)):
                    await workflow.wait_condition(lambda: False, timeout=wrong)
            for wrong in (5, None, True, "x"):
                with refuses(
                    TypeError, "wait_condition needs a function without parameters, not", repr(wrong)
                ):
                    await workflow.wait_condition(wrong)
            with refuses(TypeError, "wait_condition needs a plain function, not an 'async def'"):
                await workflow.wait_condition(true_some_time)
            with refuses(ValueError, "sleep_until needs a datetime with a time zone"):
                await workflow.sleep_until(datetime(2026, 1, 1))  # noqa: DTZ001
            for wrong in (5, "2026", None):
                with refuses(TypeError, "sleep_until needs a datetime with a time zone, not", repr(wrong)):
                    await workflow.sleep_until(wrong)
            with refuses(ValueError, "sleep_until", "100 years"):
                await workflow.sleep_until(datetime.max.replace(tzinfo=UTC))
            return "slept"

    async with memory_runtime([Sleeps]) as runtime:
        handle = await runtime.spawn(Sleeps)
        assert await handle.result() == "slept"
        assert [e.kind for e in await handle.fetch_history()] == ["WorkflowStarted", "WorkflowCompleted"]


async def test_asyncio_sleep_in_a_workflow():
    @workflow.defn
    class Sleeps:
        @workflow.run
        async def run(self) -> str:
            await asyncio.sleep(-1)
            await asyncio.sleep(0)
            for wrong in (math.inf, 1e300, 4e9):
                with refuses(ValueError, "a delay ", repr(wrong)):
                    await asyncio.sleep(wrong)
                with refuses(ValueError, "seconds, not inf" if wrong == math.inf else "0 and 100 years"):
                    await asyncio.wait_for(asyncio.get_running_loop().create_future(), wrong)
            with refuses(ValueError, "delay"):
                await asyncio.sleep(math.nan)
            return "slept"

    async with memory_runtime([Sleeps]) as runtime:
        handle = await runtime.spawn(Sleeps)
        assert await handle.result() == "slept"


# --- from outside -----------------------------------------------------------------------------------------------


async def test_timeouts_of_results_and_queries():
    async with memory_runtime([Waits]) as runtime:
        handle = await runtime.spawn(Waits)
        await handle.query(Waits.status)
        with nothing_written(runtime):
            for wrong in NO_DURATIONS:
                with refuses(ValueError, "result timeout must be between 0 and 100 years, not", repr(wrong)):
                    await handle.result(timeout=wrong)
                with refuses(ValueError, "query timeout must be between 0 and 100 years, not", repr(wrong)):
                    await handle.query(Waits.status, timeout=wrong)
            for wrong in NO_TYPES:
                with refuses(
                    TypeError, "query timeout must be a timedelta or a number of seconds", repr(wrong)
                ):
                    await handle.query(Waits.status, timeout=wrong)
                if wrong is not None:
                    with refuses(TypeError, "result timeout must be a timedelta", repr(wrong)):
                        await handle.result(timeout=wrong)
            with refuses(ValueError, "on_stall must be 'raise' or 'wait', not 'retry'"):
                await handle.result(on_stall="retry")


@pytest.mark.parametrize("wrong", ["join", "", None, 5, "Attach", ["fail"]])
async def test_words_of_a_start(wrong):
    async with memory_runtime([Waits]) as runtime:
        with (
            nothing_written(runtime),
            refuses(ValueError, "if_running must be one of 'fail', 'attach', 'replace', not", repr(wrong)),
        ):
            await runtime.spawn(Waits, if_running=wrong)
        with (
            nothing_written(runtime),
            refuses(
                ValueError,
                "if_closed must be one of 'allow', 'allow_if_failed', 'refuse', 'attach', not",
                repr(wrong),
            ),
        ):
            await runtime.execute(Waits, if_closed=wrong)


async def test_an_unknown_option_of_a_start_is_named_with_the_known_ones():
    async with memory_runtime([Waits]) as runtime:
        for start in (runtime.spawn, runtime.execute):
            with (
                nothing_written(runtime),
                refuses(
                    TypeError,
                    "unknown start option 'task_queue'; known: cron_schedule, execution_timeout, id, if_closed, ",
                ),
            ):
                await start(Waits, task_queue="fast")
            with refuses(
                TypeError, "unknown start option 'args': arguments are given one by one, before the options"
            ):
                await start(Waits, args=[1])


async def test_limits_of_lists():
    async with memory_runtime([Waits]) as runtime:
        for wrong in (-1, 1.5, "3", True):
            with refuses(ValueError if wrong == -1 else TypeError, "limit must be", repr(wrong)):
                await runtime.list_workflows(limit=wrong)
        for ask in (runtime.list_workflows, runtime.count_workflows):
            with refuses(ValueError, "status must be one of", "'running'", "'held'", "not 'done'"):
                await ask(status="done")
