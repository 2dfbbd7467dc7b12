"""Chapter C: what fails is seen, is tried a bounded number of times, and takes nobody else along."""

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import pytest
from support.hosting import hosted, settled

from everact import Runtime, activity, workflow
from everact.exceptions import (
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.testing import Replayer, TestEnvironment

# --- C01


@workflow.defn
class Raises:
    @workflow.run
    async def run(self, kind: str) -> None:
        raise ERRORS[kind]


@workflow.defn(on_crash="fail")
class RaisesAndFails:
    @workflow.run
    async def run(self, kind: str) -> None:
        raise ERRORS[kind]


class OfALibrary(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


ERRORS = {
    "ValueError": ValueError("wrong value"),
    "a library's": OfALibrary(code=7),
    "a group": ExceptionGroup("several", [KeyError("a"), OSError("b")]),
    "an assertion": AssertionError("never"),
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_c01_an_ordinary_exception_is_plain_to_see_within_the_callers_limit(kind):
    async with TestEnvironment(workflows=[Raises, RaisesAndFails]) as env:
        begun = env.now()
        handle = await env.spawn(Raises, kind, id="held")
        with pytest.raises(WorkflowQuarantinedError) as caught:
            await handle.result(timeout=30)
        assert env.now() - begun < timedelta(seconds=30)
        name = type(ERRORS[kind]).__name__
        assert name in str(caught.value)
        about = await handle.describe()
        assert about.status == "quarantined"
        assert name in about.failure
        assert "raise ERRORS[kind]" in about.failure  # with the traceback
        (listed,) = await env.runtime.list_workflows(status="quarantined")
        assert listed.workflow_id == "held"
        with pytest.raises(WorkflowFailedError, match=name) as failed:
            await env.execute(RaisesAndFails, kind, id="failed")
        assert not isinstance(failed.value, WorkflowQuarantinedError)
        assert (await env.ref("failed").describe()).status == "failed"


async def test_c01_the_number_of_tries_is_bounded_also_when_each_raises_something_else(caplog):
    counts = []

    @workflow.defn
    class Varies:
        @workflow.run
        async def run(self) -> None:
            counts.append(1)  # everact: allow
            raise ValueError(f"number {len(counts)}")

    async with TestEnvironment(workflows=[Varies]) as env:
        with pytest.raises(WorkflowQuarantinedError):
            await env.execute(Varies)
        await env.advance(timedelta(days=1))
    assert 2 <= len(counts) <= 10
    logged = [record.levelname for record in caplog.records if "ValueError: number" in record.getMessage()]
    assert logged == ["WARNING"] * (len(counts) - 1) + ["ERROR"]


# --- C02


@workflow.defn
class WaitsForAFlag:
    def __init__(self) -> None:
        self.flag = False
        self.seen: list[str] = []

    @workflow.run
    async def run(self, how: str, catches: bool) -> list[str]:
        try:
            match how:
                case "condition":
                    await workflow.wait_condition(lambda: self.flag, timeout=3600)
                case "wait_for":
                    await asyncio.wait_for(workflow.wait_condition(lambda: self.flag), 3600)
                case "timeout":
                    async with asyncio.timeout(3600):
                        await workflow.wait_condition(lambda: self.flag)
        except TimeoutError:
            if not catches:
                raise
            self.seen.append("passed")
        await workflow.wait_condition(lambda: self.flag)
        return [*self.seen, "set"]

    @workflow.signal
    def set(self) -> None:
        self.flag = True


@pytest.mark.parametrize("how", ["condition", "wait_for", "timeout"])
async def test_c02_a_limit_that_nobody_catches_fails_the_run(how):
    async with TestEnvironment(workflows=[WaitsForAFlag]) as env:
        begun = env.now()
        handle = await env.spawn(WaitsForAFlag, how, False)
        with pytest.raises(WorkflowFailedError, match="TimeoutError|did not hold within"):
            await handle.result()
        assert env.now() - begun == timedelta(hours=1)
        assert (await handle.describe()).status == "failed"


@pytest.mark.parametrize("when", ["after the limit", "at the limit", "before it"])
@pytest.mark.parametrize("how", ["condition", "wait_for", "timeout"])
async def test_c02_a_condition_that_comes_true_late_is_harmless(how, when):
    async with TestEnvironment(workflows=[WaitsForAFlag], time="manual") as env:
        handle = await env.spawn(WaitsForAFlag, how, True)
        await env.advance({"after the limit": 3601, "at the limit": 3600, "before it": 3599}[when])
        await handle.signal(WaitsForAFlag.set)
        result = await handle.result()
        assert result == (["set"] if when == "before it" else ["passed", "set"])
        assert Replayer(workflows=[WaitsForAFlag]).replay(await handle.fetch_history()).passed


# --- C04

C04_PROGRAM = """
import asyncio, os, sys
from datetime import timedelta
from everact import RetryPolicy, Runtime, activity, workflow

_, journal, kind, mended = sys.argv
FOREVER = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=0)

@activity.defn(retry_policy=FOREVER)
async def exits() -> str:
    if mended == "mended":
        return "mended"
    os.write(1, b"attempt\\n")
    os._exit(3)

@activity.defn(retry_policy=FOREVER)
async def step(number: int) -> int:
    await asyncio.sleep(0.001)
    return number

@workflow.defn
class ActivityExits:
    @workflow.run
    async def run(self) -> str:
        return await exits()

@workflow.defn
class WorkflowExits:
    @workflow.run
    async def run(self) -> str:
        if mended != "mended":
            os.write(1, b"attempt\\n")
            os._exit(3)
        return "mended"

@workflow.defn
class Good:
    @workflow.run
    async def run(self) -> int:
        return sum([await step(number) for number in range(5)])

async def main():
    kinds = [ActivityExits, WorkflowExits, Good]
    async with Runtime(journal, workflows=kinds, activities=[exits, step], guard="off", door=False) as runtime:
        if mended == "mended":
            handle = runtime.ref("bad")
            if (await handle.describe()).status == "quarantined":
                await handle.release("mended")
            print("bad", await handle.result(on_stall="wait"))
            return
        good = [await runtime.spawn(Good, id=f"good-{n}", if_running="attach", if_closed="attach") for n in range(3)]
        bad = await runtime.spawn(kind, id="bad", if_running="attach", if_closed="attach")
        print("good", [await handle.result() for handle in good], flush=True)
        try:
            print(await bad.result())
        except Exception as error:
            print("bad", type(error).__name__, error, str(error.__cause__ and error.__cause__.__cause__))
        print((await bad.describe()).status)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ActivityExits", "WorkflowExits"])
def test_c04_code_that_exits_is_tried_a_few_times_and_others_go_on(tmp_path, kind):
    program = tmp_path / "exits.py"
    program.write_text(C04_PROGRAM)

    def live(mended=""):
        return subprocess.run(
            [sys.executable, program, tmp_path / "journal", kind, mended],
            capture_output=True,
            text=True,
            timeout=30,
        )

    said = []
    for _ in range(15):
        life = live()
        said += life.stdout.splitlines()
        if life.returncode == 0:
            break
        assert life.returncode == 3, life.stderr
    else:
        raise AssertionError(said)
    assert said.count("good [10, 10, 10]") >= 1
    assert 3 <= said.count("attempt") <= 9
    assert "the process died 3 times while" in life.stdout
    assert said[-1] == ("quarantined" if kind == "WorkflowExits" else "failed")
    if kind == "WorkflowExits":  # an operator can let it go on
        life = live("mended")
        assert life.stdout == "bad mended\n", life.stderr


# --- C06


class Hiccups(MemoryStore):
    """A store whose reads fail while told."""

    fails = False
    refused = 0

    @contextmanager
    def view(self):
        with super().view() as tables:
            if self.fails:
                tables.read = self._refuse
            yield tables

    def _refuse(self, locations):
        self.refused += 1
        raise OSError(5, "Input/output error")


async def test_c06_a_store_that_fails_in_the_middle_of_recovery_strands_no_run(monkeypatch):
    """A takeover is the cluster's; this is the next start of the same process, with all its runs at once."""
    monkeypatch.setattr("everact.actors.workflow_actor.READ_PAUSE", 0.002)
    ran = Counter()

    @activity.defn
    async def work(number: int) -> int:
        ran[number] += 1
        return number

    @workflow.defn
    class Waits:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self, number: int) -> int:
            await workflow.wait_condition(lambda: self.go)
            return await work(number)

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

    journal = MemoryJournal()
    async with hosted(journal, Waits, activities=[work]) as runtime:
        for number in range(250):
            await runtime.spawn(Waits, number, id=f"w{number}")
    store = Hiccups(journal)
    async with Runtime(store, workflows=[Waits], activities=[work], durability="os", door=False) as runtime:

        async def tell(number):
            while True:
                try:
                    return await runtime.ref(f"w{number}", Waits).signal(Waits.proceed, request_id="go")
                except OSError:  # nothing has happened
                    await asyncio.sleep(0.001)

        told = []
        for number in range(250):
            if number == 100:
                store.fails = True
            told.append(asyncio.create_task(tell(number)))
            await asyncio.sleep(0)
        await settled(runtime)
        assert store.refused
        store.fails = False
        await asyncio.gather(*told)
        results = [await runtime.ref(f"w{number}", Waits).result() for number in range(250)]
        assert await runtime.count_workflows(status="running") == 0
    assert results == list(range(250))
    assert ran == Counter(range(250))


# --- C07 and C08


@workflow.defn
class Fine:
    @workflow.run
    async def run(self, number: int) -> int:
        await workflow.sleep(60)
        return number


@workflow.defn
class Lost:
    def __init__(self) -> None:
        self.heard = 0

    @workflow.run
    async def run(self, number: int) -> int:
        await workflow.wait_condition(lambda: self.heard)
        return self.heard

    @workflow.signal
    def hear(self, number: int) -> None:
        self.heard = number


@pytest.mark.parametrize("bad", [0, 2, 9])
async def test_c07_nine_of_ten_run_and_the_one_of_no_known_type_is_reported(bad):
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[Fine, Lost], journal=journal) as env:
        for number in range(10):
            await env.spawn(Lost if number == bad else Fine, number, id=f"w{number}")
    async with TestEnvironment(workflows=[Fine], journal=journal) as env:
        for number in range(10):
            if number != bad:
                assert await env.ref(f"w{number}").result() == number
        (held,) = await env.runtime.list_workflows(status="held")
        assert (held.workflow_id, held.workflow_type) == (f"w{bad}", "Lost")
        with pytest.raises(WorkflowHeldError, match="'Lost'.*known: Fine"):
            await env.ref(f"w{bad}").result()
        assert await env.runtime.count_workflows(status="running") == 0


@pytest.mark.parametrize("renamed", [False, True])
async def test_c08_a_run_that_nothing_here_can_run_waits_visibly_and_goes_on_when_it_can(renamed):
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[Lost, Fine], journal=journal) as env:
        await env.spawn(Lost, 1, id="lost")

    @workflow.defn(name="LostAndFound")
    class Renamed(Lost):
        @workflow.run
        async def run(self, number: int) -> int:
            return await super().run(number)

    here = [Renamed, Fine] if renamed else [Fine]
    async with TestEnvironment(workflows=here, journal=journal) as env:
        about = await env.ref("lost").describe()
        assert about.status == "held"
        assert "'Lost'" in about.failure
        for kind in here:
            assert ("LostAndFound" if kind is Renamed else "Fine") in about.failure
        await env.ref("lost").signal("hear", 7)  # it is not failed, and takes messages
        await env.advance(timedelta(days=30))
        assert (await env.ref("lost").describe()).status == "held"
    async with TestEnvironment(workflows=[Lost, Fine], journal=journal) as env:
        assert await env.ref("lost").result() == 7
