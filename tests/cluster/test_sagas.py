"""How far a saga is, seen from another process and from the command line."""

import asyncio

import pytest
from support.hosting import until

from everact import ApplicationError, Client, RetryPolicy, Runtime, activity, workflow
from everact.exceptions import WorkflowQuarantinedError
from everact.workflow_texts import print_description

ONCE = RetryPolicy(maximum_attempts=1)
answers = {"hotel": False}


@activity.defn
async def book(what: str) -> str:
    return what


@activity.defn(retry_policy=ONCE)
async def cancel(what: str) -> None:
    await asyncio.sleep(0)
    if not answers.get(what, True):
        raise ApplicationError(f"{what} does not answer")


@workflow.defn
class Trip:
    @workflow.run
    async def run(self) -> None:
        async with workflow.saga("trip", on_compensation_failure="escalate") as saga:
            for what in ("flight", "hotel", "car"):
                await saga.run(book, what, name=what, compensate=cancel)
            raise ApplicationError("no")


async def test_a_client_and_the_command_line_show_how_far_a_saga_is(tmp_journal, capsys):
    async with (
        Runtime(tmp_journal, workflows=[Trip], activities=[book, cancel], grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        trip = await client.spawn(Trip, id="trip-1")
        with pytest.raises(WorkflowQuarantinedError, match="hotel does not answer"):
            await trip.result()
        seen = await trip.describe()
        assert seen == await runtime.ref("trip-1", Trip).describe()
        assert str(seen.sagas[0]) == "trip: 1 of 3 compensations done; failed hotel"
        print_description(seen)
        printed = capsys.readouterr().out
        assert "saga:             trip: 1 of 3 compensations done; failed hotel" in printed
        assert "hotel does not answer" in printed
        answers["hotel"] = True
        await trip.release("it answers")
        await until(lambda: runtime._shard.find("trip-1").is_closed)
        assert (await trip.describe()).sagas[0].completed == 3
