"""Progress of steps as outsiders see it: through a client, and on the command line beside a closed journal."""

import asyncio
import json
import sys

import pytest
from support.hosting import gate, until

from everact import ApplicationError, Client, Runtime, workflow
from everact.cli import main


def command(monkeypatch, capsys, *arguments):
    """Run ``everact`` in this process; returns what it printed."""
    monkeypatch.setattr(sys, "argv", ["everact", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    assert (left.value.code, err) == (0, "")
    return out


async def live(tmp_journal):
    """A run in the middle of its second attempt of a step, as its client sees it."""
    held = gate()

    @workflow.defn(name="Stepped")
    class W:
        @workflow.run
        async def run(self) -> None:
            for _ in range(3):
                await self.quick()
            await self.slow()

        @workflow.step
        async def quick(self) -> None:
            pass

        @workflow.step(retry=5)
        async def slow(self) -> None:
            if await workflow.execute_activity(held.fn, ""):
                raise ApplicationError("not yet")

    async with (
        Runtime(tmp_journal, workflows=[W], activities=[held.fn], grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        handle = await runtime.spawn(W.run, id="w")
        await until(lambda: held.calls)
        description = await client.ref("w").describe()
        assert description == await handle.describe()
        assert [step.name for step in description.steps] == ["quick", "quick", "quick", "slow"]
        assert (description.current_step, description.step_counts) == ("slow", {"completed": 3})
        held.open.set()
        await until(lambda: runtime._shard.find("w").state.steps.running[4].attempt == 2)
        await runtime._shard.idle()


def test_a_client_and_the_command_line_show_the_steps(tmp_journal, monkeypatch, capsys):
    asyncio.run(live(tmp_journal))
    place = ("--journal", str(tmp_journal))
    text = command(monkeypatch, capsys, "describe", "w", *place)
    assert "steps:            3 completed\n" in text
    assert "step:             slow since " in text
    assert ", attempt 2, which begins at " in text
    (slow,) = [
        step
        for step in json.loads(command(monkeypatch, capsys, "describe", "w", "--json", *place))["steps"]
        if step["name"] == "slow"
    ]
    assert (slow["status"], slow["attempt"], slow["ended_at"]) == ("running", 2, None)
    history = command(monkeypatch, capsys, "history", "w", *place)
    assert 'StepStarted {"command":4,"name":"slow"' in history
