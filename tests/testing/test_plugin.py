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


def pytest_run(folder, text, *options, ini="filterwarnings = error\n"):
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest"]
    return subprocess.run(
        [*command, *options, "."], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
def test_a_run_that_does_not_use_the_kit_does_not_import_the_engine(tmp_path):
    text = (
        "import sys\n\ndef test_it(request):\n"
        "    assert request.config.getoption('--everact-seed') == 0\n"
        "    assert 'everact.pytest_plugin' in sys.modules\n"
        "    assert not [name for name in sys.modules if name.startswith(('everact.actors', 'everact.testing'))]\n"
    )
    done = pytest_run(tmp_path, text)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


FAILING = """
import asyncio

from everact import workflow
from everact.testing import ActivityScheduled, HistoryAssertion, TestEnvironment, assert_history


@workflow.defn
class Fails:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False, timeout=5)


def test_result():
    async def main():
        async with TestEnvironment(workflows=[Fails]) as env:
            await env.execute(Fails)

    asyncio.run(main())


def test_until():
    async def main():
        async with TestEnvironment() as env:
            await env.until(lambda: False)

    asyncio.run(main())


def test_matcher():
    async def main():
        async with TestEnvironment(workflows=[Fails]) as env:
            handle = await env.spawn(Fails)
            assert_history(await handle.fetch_history()).has(ActivityScheduled("charge"))

    asyncio.run(main())


def test_bug():
    HistoryAssertion.has(object(), ActivityScheduled("charge"))
"""


def shown(done, test):
    """What one test shows, up to the next one."""
    return done.stdout.partition(f" {test} ___")[2].partition("\n____")[0]


@pytest.mark.slow
def test_a_failed_test_shows_its_own_line_and_not_those_of_everact(tmp_path):
    done = pytest_run(tmp_path, FAILING, "--tb=short", "--show-capture=no")
    for test, line in (
        ("test_result", "await env.execute(Fails)"),
        ("test_until", "await env.until(lambda: False)"),
        ("test_matcher", 'assert_history(await handle.fetch_history()).has(ActivityScheduled("charge"))'),
    ):
        text = shown(done, test)
        assert line in text, done.stdout
        assert "test_it.py:" in text.rpartition(line)[0].splitlines()[-2]
        assert text.rpartition(line)[2].lstrip(" ^\n").startswith("E   ")
        assert not [
            name
            for name in ("messenger.py", "environment.py", "driver.py", "history_matchers.py")
            if name in text
        ]
    done = pytest_run(tmp_path, FAILING, "--tb=short", "--show-capture=no", "--everact-frames")
    assert "messenger.py" in shown(done, "test_result")
    assert "history_matchers.py" in shown(done, "test_matcher")


@pytest.mark.slow
def test_the_frames_of_what_may_be_a_bug_of_everact_are_shown(tmp_path):
    done = pytest_run(tmp_path, FAILING, "--tb=short", "--show-capture=no", "-k", "bug")
    assert "history_matchers.py" in done.stdout
    assert "AttributeError" in done.stdout


CARELESS = """
import asyncio

from everact import activity
from everact.testing import ActivityEnvironment


@activity.defn
async def one() -> int:
    return 1


def test_not_awaited():
    ActivityEnvironment().run(one)


def test_awaited():
    assert asyncio.run(ActivityEnvironment().run(one)) == 1


def test_call(everact_env):
    everact_env.execute("Order")


def test_block(everact_env):
    async def main():
        async with everact_env as env:
            await env.execute("Order")

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("ini", ["", "filterwarnings = default\n"])
def test_wrong_calls_of_fixtures_and_an_activity_that_is_not_awaited_fail_their_test(tmp_path, ini):
    done = pytest_run(tmp_path, CARELESS, ini=ini)
    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    write = "write `async with everact_env(workflows=[...], activities=[...]) as env:` and use env"
    assert "coroutine 'ActivityEnvironment.run' was never awaited" in shown(done, "test_not_awaited")
    assert (
        f"AttributeError: everact_env makes test environments, and has no 'execute' itself: {write}.execute\n"
        in shown(done, "test_call")
    )
    assert f"TypeError: everact_env makes test environments, and is none itself: {write}\n" in shown(
        done, "test_block"
    )
