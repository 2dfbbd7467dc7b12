"""Environments that die at fault points, and go on: what holds through it, and what is found out."""

import asyncio
import re
import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial

import pytest

from everact import activity, workflow
from everact.testing import CRASH_POINTS, TestEnvironment
from everact.testing.clock import VirtualClock, VirtualLater
from everact.testing.crashes import Fault, Plan, SimulatedCrashError, planned

done: list[str] = []


@activity.defn
async def charge(order: str) -> str:
    """Does each thing once for each key, as a good service."""
    key = activity.info().idempotency_key
    if key not in done:
        done.append(key)
    return f"paid {order}"


@activity.defn
async def careless(order: str) -> str:
    done.append(order)
    return f"paid {order}"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.approvals: list[int] = []
        self.notes: list[str] = []

    @workflow.run
    async def run(self, order: str, keyed: bool = True) -> list[str]:
        paid = await (charge if keyed else careless)(order)
        await workflow.wait_condition(lambda: len(self.approvals) >= 3)
        await workflow.sleep(timedelta(days=1))
        return [paid, *map(str, self.approvals), *self.notes]

    @workflow.signal
    def approve(self, number: int) -> None:
        self.approvals.append(number)

    @workflow.update
    async def note(self, text: str) -> int:
        await workflow.sleep(60)
        self.notes.append(text)
        return len(self.notes)

    @workflow.query
    def count(self) -> int:
        return len(self.approvals)


@pytest.fixture(autouse=True)
def _nothing_done():
    done.clear()
    yield


async def order(store="memory", keyed=True):
    done.clear()
    async with TestEnvironment(workflows=[Order], activities=[charge, careless], store=store) as env:
        handle = await env.spawn(Order, "tea", keyed)
        for number in range(3):
            await handle.signal(Order.approve, number)
        assert await handle.query(Order.count) == 3
        assert await handle.execute_update(Order.note, "hot") == 1
        noted = await handle.start_update(Order.note, "sweet")
        assert await noted.result() == 2
        assert await handle.result() == ["paid tea", "0", "1", "2", "hot", "sweet"]
        assert (await handle.describe()).status == "completed"
        assert await env.runtime.count_workflows(status="completed") == 1
        assert [run.workflow_id async for run in env.runtime.list_workflows()] == [handle.workflow_id]
        return env.crashes


@pytest.mark.crash_everywhere
async def test_everything_is_applied_once_wherever_it_dies():
    await order()
    assert len(done) == 1


@pytest.mark.crash_everywhere(points=["journal.commit.*", "activity.*", "message.ack.before"], limit=25)
async def test_also_with_a_journal_on_disk():
    await order("lmdb")
    assert len(done) == 1


@pytest.mark.chaos(seeds=40)
async def test_faults_of_all_kinds_at_a_time():
    await order()
    assert len(done) == 1


@pytest.mark.chaos(seeds=range(5), count=2)
async def test_faults_on_disk():
    await order("lmdb")
    assert len(done) == 1


@pytest.mark.crash_everywhere(limit=30)
def test_a_test_that_is_a_plain_function():
    asyncio.run(order())


async def test_all_points_of_an_order_are_passed_and_each_crash_happens():
    count = Plan()
    with planned(count):
        assert await order() == 0
    assert {"journal.commit.before", "activity.start.before", "message.ack.before"} <= set(count.passes)
    plan = Plan([Fault("journal.commit.after", 2)])
    with planned(plan):
        assert await order() == 1
    assert plan.happened


async def test_an_activity_that_is_not_idempotent_is_found_out():
    """It was done, and died before its result was durable: it is done again."""
    with planned(Plan([Fault("activity.result.before", 1)])):
        await order(keyed=False)
    assert done == ["tea", "tea"]


async def test_a_crash_where_the_test_says_so_and_fakes_stay():
    async with TestEnvironment(workflows=[Order]) as env:
        charged = env.mock_activity(charge, returns="paid", delay=10)
        handle = await env.spawn(Order, "tea")
        waiting = asyncio.create_task(handle.result())
        await env.sleep(5)
        await env.crash()
        assert env.crashes == 1
        await env.sleep(5)
        for number in range(3):
            await handle.signal(Order.approve, number)
        assert await waiting == ["paid", "0", "1", "2"]
        assert charged.call_count == 2


async def test_a_crash_right_behind_another_one_is_one_more():
    """Two lives at once would have two drivers of time, and each would give up what the other one lets go on."""
    async with TestEnvironment(workflows=[Order]) as env:
        env._lives.die()
        await env.crash()
        assert env.crashes == 2
        drivers = [task for task in asyncio.all_tasks() if task.get_name() == "everact-virtual-time"]
        assert len(drivers) == 1


async def test_a_call_right_behind_a_second_death_on_another_thread_waits_for_the_third_life():
    """The loop has not heard of that death yet; who waits for the next life lets it."""
    async with TestEnvironment(workflows=[Order]) as env:
        await env.crash()
        writer = threading.Thread(target=env._lives.die)
        writer.start()
        writer.join()
        await env._lives.alive()
        assert env.crashes == 2


@pytest.mark.slow
@pytest.mark.crash_everywhere
async def test_a_restart_in_which_it_dies_ends_in_a_next_life_all_the_same():
    done.clear()
    async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
        handles = [await env.spawn(Order, order) for order in ("tea", "pot")]
        await env.restart()
        for number in range(3):
            await asyncio.gather(*(handle.signal(Order.approve, number) for handle in handles))
            await env.restart()
        for handle in handles:
            assert (await handle.result())[1:] == ["0", "1", "2"]
    assert len(done) == 2


async def test_what_is_asked_of_a_dead_runtime_is_answered_in_its_next_life():
    with planned(Plan([Fault("message.ack.before", 1_000)])):
        async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
            handle = await env.spawn(Order, "tea")
            runtime = env.runtime
            env._lives.die()
            assert await runtime.count_workflows() == 1
            assert env.crashes == 1
            env._lives.die()
            assert [run.workflow_id for run in await runtime.list_workflows()] == [handle.workflow_id]
            env._lives.die()
            assert await runtime.purge(workflow_id=handle.workflow_id) == 0
            assert env.crashes == 3


async def test_a_crash_at_a_point_that_comes():
    async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
        handle = await env.spawn(Order, "tea")
        env.crash_at("message.ack.before", 2)
        for number in range(3):
            await handle.signal(Order.approve, number)
        assert env.crashes == 1
        assert await handle.query(Order.count) == 3
        with pytest.raises(ValueError, match=r"no environment can die at 'nowhere'; points: journal\.commit"):
            env.crash_at("nowhere")


def test_points_are_those_of_a_runtime_that_is_open():
    assert "journal.commit.before" in CRASH_POINTS
    assert "journal.open.before" not in CRASH_POINTS


CARELESS = """
import pytest

from everact import activity, workflow
from everact.testing import TestEnvironment

done = []


@activity.defn
async def careless() -> int:
    done.append(1)
    return len(done)


@workflow.defn
class Order:
    @workflow.run
    async def run(self) -> int:
        return await careless()


@pytest.mark.asyncio
@pytest.mark.crash_everywhere(points="activity.*")
async def test_it():
    done.clear()
    async with TestEnvironment(workflows=[Order], activities=[careless]) as env:
        await env.execute(Order)
    assert len(done) == 1


@pytest.mark.crash_everywhere(points="purge.*")
def test_no_point():
    pass


@pytest.mark.crash_everywhere(points="nowhere:1")
def test_no_such_point():
    pass


@pytest.mark.crash_everywhere(limit=0)
def test_no_limit():
    pass


@workflow.defn
class Counts:
    def __init__(self):
        self.count = 0

    @workflow.run
    async def run(self) -> int:
        await workflow.sleep(60)
        return self.count

    @workflow.signal
    def add(self) -> None:
        self.count += 1


@pytest.mark.asyncio
@pytest.mark.chaos
async def test_chance():
    done.clear()
    async with TestEnvironment(workflows=[Counts, Order], activities=[careless]) as env:
        handle = await env.spawn(Counts)
        await handle.signal(Counts.add)
        await env.execute(Order)
        assert await handle.result() == 1
    assert len(done) == 1


@pytest.mark.chaos(faults=["message.lost:1"])
def test_no_such_fault():
    pass


@pytest.mark.chaos
def test_nothing_to_go_wrong():
    pass


@pytest.mark.chaos
@pytest.mark.crash_everywhere
def test_both():
    pass


@pytest.mark.chaos(seeds="5")
def test_seeds():
    pass


@pytest.mark.chaos(faults="message.repeated:2", seeds=3)
def test_seeds_and_faults():
    pass


@pytest.mark.chaos(faults="message.repeated:200")
def test_never():
    pass


@pytest.mark.chaos(seed=5)
def test_unknown():
    pass


@pytest.mark.crash_everywhere(points="activity.rezult.before")
def test_mistyped():
    pass


@pytest.mark.chaos(delay=0)
def test_no_delay():
    pass


@pytest.mark.chaos(faults="journal.commit.after:1:5")
def test_what_is_not_late():
    pass


@workflow.defn
class Hurried:
    def __init__(self):
        self.has_come = False

    @workflow.run
    async def run(self) -> bool:
        await workflow.sleep(0.005)
        return self.has_come

    @workflow.signal
    def come(self) -> None:
        self.has_come = True


@pytest.mark.asyncio
@pytest.mark.chaos(seeds=40, delay=3600)
async def test_too_late():
    async with TestEnvironment(workflows=[Hurried]) as env:
        handle = await env.spawn(Hurried)
        await handle.signal(Hurried.come)
        assert await handle.result()


@pytest.mark.asyncio
@pytest.mark.chaos(faults=["message.delayed:2:0.0049"])
async def test_just_in_time():
    async with TestEnvironment(workflows=[Hurried]) as env:
        handle = await env.spawn(Hurried)
        await handle.signal(Hurried.come)
        assert await handle.result()
"""


def test_what_a_marked_test_says(tmp_path):
    (tmp_path / "test_it.py").write_text(CARELESS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    said = ended.stdout
    assert "16 failed, 1 passed" in said
    assert "chaos' delay is a number of seconds, 0.001 or more, not 0" in said
    assert "there is no fault 'journal.commit.after:1:5'; write" in said
    # The delay was a longer one: less is enough.
    assert "@pytest.mark.chaos(faults=['message.delayed:2:0.01'])" in said
    assert (
        "with a crash at pass 1 of activity.result.before; only this one: "
        '@pytest.mark.crash_everywhere(points="activity.result.before:1")'
    ) in said
    assert "test_no_point passes none of the points purge.*" in said
    assert "there is no fault 'nowhere:1'; write 'name:pass', or 'name:pass:seconds' for what" in said
    assert "for what comes late, with one of journal.commit.before" in said
    assert re.search(
        r"with these faults; only these: @pytest.mark.chaos\(faults=\[('[a-z.]+:\d+(:[\d.]+)?'(, )?)+\]\)",
        said,
    ), said
    assert "there is no fault 'message.lost:1'; write 'name:pass', or" in said
    assert "message.repeated" in said
    assert "has no TestEnvironment in which something could go wrong" in said
    assert "has both crash_everywhere and chaos: make it two tests" in said
    assert "chaos' seeds are a number, or a list of some, not '5'" in said
    assert "chaos takes faults, or seeds, count and delay, not both" in said
    assert "none of these faults has happened" in said
    assert "chaos does not take 'seed'; it takes seeds, count, faults, delay" in said
    assert "no point is named by 'activity.rezult.before'; points: journal.commit.before" in said
    assert "crash_everywhere's limit is a number, 1 or more, not 0" in said


@pytest.mark.parametrize("written", [False, True])
async def test_commits_that_fail_lose_nothing_and_apply_nothing_twice(written):
    for count in range(1, 8):
        done.clear()
        async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
            env.fail_commit(count=count, written=written)
            handle = await env.spawn(Order, "tea")
            for number in range(3):
                await handle.signal(Order.approve, number)
            assert await handle.execute_update(Order.note, "hot") == 1
            assert await handle.result() == ["paid tea", "0", "1", "2", "hot"]
        assert len(done) == 1


async def test_a_message_sent_in_the_pause_after_failed_commits_does_not_wait_for_ever():
    """Only time ends that pause, and nobody else waits for any."""
    async with TestEnvironment(workflows=[Order]) as env:
        paid = asyncio.Event()

        async def pays(order):
            await paid.wait()
            return f"paid {order}"

        env.mock_activity(charge, side_effect=pays)
        handle = await env.spawn(Order, "tea")
        env.fail_commit(count=1)
        env.fail_commit(count=2)
        paid.set()
        while not env.runtime._shard.rebuilding.is_pausing:
            await asyncio.sleep(0)
        for number in range(3):
            await asyncio.wait_for(handle.signal(Order.approve, number), 20)
        assert await handle.result() == ["paid tea", "0", "1", "2"]


def test_a_timer_at_which_the_environment_dies_leaves_the_others_of_that_moment_due():
    clock, passed = VirtualClock(), []
    later = VirtualLater(clock)

    def dies():
        raise SimulatedCrashError("here")

    for callback in (partial(passed.append, 1), dies, partial(passed.append, 2), partial(passed.append, 3)):
        later.call_later(1, callback)
    clock.move(1_000_000)
    with pytest.raises(SimulatedCrashError):
        later.check()
    assert passed == [1]
    later.check()
    assert passed == [1, 2, 3]


async def test_a_commit_fails_once_and_all_of_them_where_many_are_told_to():
    async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
        for count in range(1, 6):
            env.fail_commit(count=count)
        handle = await env.spawn(Order, "tea", id="order")
        assert (await handle.describe()).status == "running"
        with pytest.raises(ValueError, match="count"):
            env.fail_commit(count=0)


@pytest.mark.parametrize("step", [-1800, 1800, 0])
async def test_the_wall_clock_jumps(step):
    async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
        begun = env.now()
        handle = await env.spawn(Order, "tea")
        for number in range(3):
            await handle.signal(Order.approve, number)
        await env.sleep(60)
        env.step_clock(step)
        await handle.result()
        assert env.now() - begun == timedelta(days=1)  # by the wall clock
        assert env.clock.elapsed / 1_000_000 == 86_400 - step
        with pytest.raises(ValueError, match="before 1970"):
            env.step_clock(timedelta(days=-30_000))


async def test_what_a_test_has_asked_for_and_never_came_fails_it():
    with pytest.raises(
        RuntimeError, match=r"a fault at pass 99 of timer\.fire\.before, which was passed 0 times"
    ):
        async with TestEnvironment(workflows=[Order]) as env:
            env.crash_at("timer.fire.before", 99)
    with pytest.raises(RuntimeError, match="the TestEnvironment is not open"):
        await TestEnvironment(workflows=[Order]).execute(Order, "tea")
    with pytest.raises(TypeError, match="not an async one"):
        async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
            handle = await env.spawn(Order, "tea")
            await env.until(handle.describe)


async def test_one_environment_dies_and_another_in_the_same_loop_does_not():
    async with (
        TestEnvironment(workflows=[Order], activities=[charge]) as mortal,
        TestEnvironment(workflows=[Order], activities=[charge]) as other,
    ):

        async def orders(env, rounds):
            for _ in range(rounds):
                handle = await env.spawn(Order, "tea")
                for number in range(3):
                    await handle.signal(Order.approve, number)
                assert await handle.result() == ["paid tea", "0", "1", "2"]

        async def dies():
            for _ in range(5):
                await orders(mortal, 1)
                await mortal.crash()

        await asyncio.gather(dies(), orders(other, 20))
        assert (mortal.crashes, other.crashes) == (5, 0)


async def test_each_environment_counts_its_own_points_only():
    async def passes(*others):
        async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
            begun = [asyncio.create_task(other()) for other in others]
            handle = await env.spawn(Order, "tea")
            for number in range(3):
                await handle.signal(Order.approve, number)
            await handle.result()
            counted = dict(env._lives.plan.passes)
            await asyncio.gather(*begun)
            return counted

    alone = await passes()
    assert alone["timer.fire.before"] == 1
    assert await passes(order, order) == alone


async def test_one_of_two_environments_dies_at_its_own_pass():
    async with (
        TestEnvironment(workflows=[Order], activities=[charge]) as mortal,
        TestEnvironment(workflows=[Order], activities=[charge]) as other,
    ):
        mortal.crash_at("timer.fire.before")
        for env in (other, mortal):
            handle = await env.spawn(Order, "tea")
            for number in range(3):
                await handle.signal(Order.approve, number)
            assert await handle.result() == ["paid tea", "0", "1", "2"]
        assert (mortal.crashes, other.crashes) == (1, 0)
