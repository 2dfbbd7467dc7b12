"""Random programs of steps, in and beside each other, with messages at random moments: R6 for all of them.

Half of them run with no code kept between two turns, so that they are replayed, with jumps, at every turn; afterwards
each is replayed whole and with jumps, up to each of its records.
"""

import asyncio
import random

import pytest
from support.hosting import hosted, settled
from support.rounds import rounds
from support.steps import ACTIVITIES, add, refuse, replayed_alike

from everact import ActivityError, ApplicationError, RetryPolicy, workflow
from everact.journal.memory_store import MemoryJournal

SEEDS = rounds(range(40), 20)
AT_ONCE = RetryPolicy(initial_interval=0.000001, maximum_interval=0.000001, maximum_attempts=3, jitter=0.5)
SIMPLE = ("act", "sleep", "put", "alias", "draw", "uuid", "memo", "field", "wait", "own", "condition", "fail")
NESTED = (
    "step",
    "step",
    "step",
    "retried",
    "optional",
    "limited",
    "gather",
    "group",
    "task",
    "race",
    "shielded",
)


def program(rng, depth=0):
    """Operations, some of which hold others."""
    ops = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(NESTED if depth < 3 and rng.random() < 0.6 else SIMPLE)
        if kind in ("gather", "group", "race"):
            ops.append([kind, [program(rng, depth + 1) for _ in range(rng.randint(1, 3))]])
        elif kind in NESTED:
            ops.append([kind, program(rng, depth + 1)])
        else:
            ops.append([kind, rng.randint(0, 9)])
    return ops


@workflow.defn
class Random:
    """Does what it is told, and writes down all that it sees."""

    items: list[int]
    twin: list[int] | None

    def __init__(self) -> None:
        self.items = []
        self.twin = None
        self.log: list[str] = []
        self.failures = 0

    @workflow.run
    async def run(self, ops: list[list[object]]) -> list[str]:
        try:
            await self.do(ops)
        except (ApplicationError, ActivityError, TimeoutError) as error:
            self.log.append(f"left by {type(error).__name__} {error}")
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.log

    @workflow.signal
    def poke(self, n: int) -> None:
        self.items.append(n)
        self.log.append(f"poked {n}")

    @workflow.update
    async def ask(self, n: int) -> int:
        self.items.append(await add(n))
        return len(self.items)

    @workflow.query
    def look(self) -> list[str]:
        return self.log

    async def do(self, ops: list[list[object]]) -> None:
        held = self.items
        for kind, value in ops:
            await getattr(self, f"do_{kind}")(value)
            held.append(-1)
            self.log.append(f"{kind} {self.items} {self.twin} {workflow.time():.6f}")

    async def do_act(self, n: int) -> None:
        self.items.append(await add(n))

    async def do_sleep(self, n: int) -> None:
        await workflow.sleep(0.0001 * n)

    async def do_put(self, n: int) -> None:
        self.items.append(n)

    async def do_alias(self, _n: int) -> None:
        self.twin = None if self.twin else self.items

    async def do_draw(self, n: int) -> None:
        rng = workflow.random(f"stream {n % 3}")
        self.log.append(f"{rng.random()} {rng.gauss(0, 1)} {rng.randint(0, 1 << 40)}")

    async def do_uuid(self, _n: int) -> None:
        self.log.append(str(workflow.uuid4()))

    async def do_memo(self, n: int) -> None:
        workflow.upsert_memo({f"m{n % 2}": n or None, "k": len(self.items)})
        self.log.append(str(workflow.memo()))

    async def do_field(self, n: int) -> None:
        if hasattr(self, "extra"):
            del self.extra
        else:
            self.extra = {f"{n}": [n]}

    async def do_wait(self, n: int) -> None:
        got = await workflow.wait_for_signal(
            Random.poke if n % 2 else f"s{n % 3}", timeout=0.0005, default=None
        )
        self.log.append(f"got {got}")

    async def do_own(self, n: int) -> None:
        self.log.append(f"effect {workflow.side_effect(lambda: n + 1)}")

    async def do_condition(self, n: int) -> None:
        try:
            await workflow.wait_condition(lambda: len(self.items) > n, timeout=0.0005)
        except TimeoutError:
            self.log.append("not met")

    async def do_fail(self, n: int) -> None:
        self.failures += 1
        if n > 6:
            raise ApplicationError(f"failure {self.failures}")
        if n > 5:
            await workflow.execute_activity(refuse, "refused")

    async def do_step(self, ops: list[list[object]]) -> None:
        try:
            self.log.append(f"result {await self.step(ops, self.items)}")
        except (ApplicationError, ActivityError, TimeoutError) as error:
            self.log.append(f"{type(error).__name__} {error} {error.__cause__}")

    @workflow.step
    async def step(self, ops: list[list[object]], given: list[int]) -> list[int]:
        given.append(100)
        await self.do(ops)
        return self.items if len(given) % 2 else given

    async def do_retried(self, ops: list[list[object]]) -> None:
        await self.retried(ops)

    @workflow.step(retry=AT_ONCE, optional=True)
    async def retried(self, ops: list[list[object]]) -> None:
        await self.do(ops)
        if workflow.random("retries").random() < 0.5:
            raise ApplicationError("again")

    async def do_optional(self, ops: list[list[object]]) -> None:
        self.log.append(f"optional {await self.optional(ops)}")

    @workflow.step(optional=True)
    async def optional(self, ops: list[list[object]]) -> int | None:
        await self.do(ops)
        return 1

    async def do_limited(self, ops: list[list[object]]) -> None:
        self.log.append(f"limited {await self.limited(ops)}")

    @workflow.step(timeout=0.0007, on_timeout="late", optional=True)
    async def limited(self, ops: list[list[object]]) -> str | None:
        await self.do(ops)
        return "in time"

    async def do_gather(self, parts: list[list[list[object]]]) -> None:
        results = await asyncio.gather(*(self.step(part, [1]) for part in parts), return_exceptions=True)
        self.log.append(str([r if isinstance(r, list) else str(r) for r in results]))

    async def do_group(self, parts: list[list[list[object]]]) -> None:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(self.optional(part))

    async def do_task(self, ops: list[list[object]]) -> None:
        task = asyncio.create_task(self.optional(ops))
        await self.do_act(1)
        self.log.append(f"{task.get_name()} {await task}")

    async def do_race(self, parts: list[list[list[object]]]) -> None:
        won = await workflow.race(*(self.optional(part) for part in parts), pause=workflow.sleep(0.0005))
        self.log.append(f"won {won}")

    async def do_shielded(self, ops: list[list[object]]) -> None:
        await asyncio.shield(self.optional(ops))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_replay_that_jumps_and_one_that_does_not_come_to_the_same(seed, request):
    if seed % 2:
        request.getfixturevalue("keeps_code")
    rng = random.Random(seed)
    ops = program(rng)
    async with hosted(MemoryJournal(), Random, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Random.run, ops)
        for _ in range(rng.randint(0, 6)):
            match rng.choice(["poke", "ask", "unknown", "settle"]):
                case "poke":
                    sent = handle.signal(Random.poke, rng.randint(0, 9))
                case "ask":
                    sent = handle.execute_update(Random.ask, rng.randint(0, 9))
                case "unknown":
                    sent = handle.signal(f"s{rng.randint(0, 2)}", rng.randint(0, 9))
                case _:
                    sent = settled(runtime)
            try:
                await sent
            except Exception:  # noqa: BLE001  (the run has ended)
                break
        result = await handle.result()
        assert await handle.query(Random.look) == result
        history = await handle.fetch_history()
    replayed_alike(Random, ACTIVITIES, history)
    for cut in range(1, len(history.records)):
        replayed_alike(Random, ACTIVITIES, type(history)("w", "r", history.records[:cut]))
