"""The pytest plugin: fixtures that need no other plugin."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.smoke

TESTS = """
import asyncio

import pytest


@pytest.fixture
def everact_options():
    return {"time": "manual"}


def test_environment(everact_env, everact_activity_env):
    from everact import activity, workflow

    @activity.defn
    async def one() -> int:
        return 1

    @workflow.defn
    class Draws:
        @workflow.run
        async def run(self) -> float:
            await workflow.sleep(3600)
            return workflow.random().random()

    async def drawn(**options):
        async with everact_env(workflows=[Draws], **options) as env:
            handle = await env.spawn(Draws)
            await env.advance(3600)
            return await handle.result()

    async def main():
        assert await drawn() == await drawn() == await drawn(seed=7) != await drawn(seed=8)
        assert await everact_activity_env.run(one) == 1

    asyncio.run(main())
"""


def test_fixtures_work_without_a_plugin_for_asyncio(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "--everact-seed", "7", "-p", "no:cacheprovider"]
    command += ["-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
