"""What is entered with ``async with`` says so when it is entered with ``with``; a client may be entered at once."""

import asyncio
import re

import pytest

from everact import Client, Runtime, workflow
from everact.exceptions import RuntimeUnreachableError
from everact.testing import TestEnvironment


def refused(written):
    text = f"`with {written}` lacks an async: write `async with {written}`, in an async def"
    return pytest.raises(TypeError, match=f"^{re.escape(text)}$")


@workflow.defn
class Careless:
    @workflow.run
    async def run(self) -> None:
        with refused("workflow.saga(...)"), workflow.saga():
            pass


def test_runtimes_and_test_environments():
    with refused("Runtime(...)"), Runtime("never made"):
        pass
    with refused("TestEnvironment(...)"), TestEnvironment():
        pass


async def test_sagas():
    async with TestEnvironment(workflows=[Careless]) as env:
        await env.execute(Careless)
        with refused("Runtime(...)"), env.runtime:
            pass


async def test_clients(tmp_journal):
    async with Runtime(tmp_journal) as runtime:
        with refused("Client.connect(...)"), Client.connect(f"unix:{tmp_journal}"):
            pass
        async with Client.connect(f"unix:{tmp_journal}") as client:
            assert client.name == runtime.name
        with refused("Client.connect(...)"), client:
            pass


async def test_a_client_may_be_awaited_or_made_by_a_task_too(tmp_journal):
    async with Runtime(tmp_journal) as runtime:
        made = [
            await Client.connect(f"unix:{tmp_journal}"),
            await asyncio.create_task(Client.connect(f"unix:{tmp_journal}")),
            await asyncio.wait_for(Client.connect(f"unix:{tmp_journal}"), 60),
        ]
        for client in made:
            assert client.name == runtime.name
            await client.close()


async def test_a_client_that_cannot_connect_is_not_entered(tmp_path):
    with pytest.raises(RuntimeUnreachableError):
        async with Client.connect(f"unix:{tmp_path}"):
            raise AssertionError
    with pytest.raises(ValueError, match="Client.connect takes 'unix:DIR'"):
        async with Client.connect("tcp:5"):
            raise AssertionError
