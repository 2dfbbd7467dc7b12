"""Replays under other hash seeds: in processes of their own, which import what they replay by its name."""

import os
import sys
import types

import pytest
from support.corpus import GOOD, OLD
from support.corpus_workflows import ACTIVITIES, WORKFLOWS, Feature, Polite
from support.hosting import hosted
from support.seed_workflows import (
    POINT,
    Closure,
    Point,
    Pointing,
    Talking,
    Unordered,
    Waits,
    visit,
)

from everact import workflow
from everact.exceptions import ReplayFailedError
from everact.journal.memory_store import MemoryJournal
from everact.testing import Replayer

pytestmark = pytest.mark.slow
ACTS = [visit]


@workflow.defn
class Here:
    """In a test module, which is on no path."""

    @workflow.run
    async def run(self) -> str:
        return await visit("x")


@workflow.defn
class Hidden:
    @workflow.run
    async def run(self) -> None: ...


HIDDEN, Hidden = Hidden, None


async def history_of(cls, *args, **options):
    async with hosted(MemoryJournal(), cls, activities=ACTS, guard="off", **options) as runtime:
        handle = await runtime.spawn(cls, *args)
        await handle.result()
        return await handle.fetch_history()


async def test_the_order_of_a_set_is_found_out():
    history = await history_of(Unordered)
    seeds = [0, 1, 42]  # seven strings: that one has the order of another by chance is rare
    replayer = Replayer(workflows=[Unordered], guard="off", hash_seeds=seeds)
    report = replayer.replay(history, raise_on_failure=False)
    assert [result.hash_seed for result in report.results] == [None, *seeds]
    assert report.results[0].passed
    assert report.failed
    failure = report.failed[0].failure
    assert failure.kind == "nondeterminism"
    assert "a timer of 0.00" in failure.expected
    assert "a timer of 0.00" in failure.actual
    assert failure.file.endswith("seed_workflows.py")
    with pytest.raises(ReplayFailedError, match="under PYTHONHASHSEED="):
        replayer.replay(history)


def test_many_histories_share_the_processes(monkeypatch):
    started = []
    popen = __import__("subprocess").Popen
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: started.append(a) or popen(*a, **k))
    replayer = Replayer(
        workflows=WORKFLOWS, activities=ACTIVITIES, interceptors=[Polite()], hash_seeds=[0, 1]
    )
    report = replayer.replay_many([GOOD / "headers.json"] * 3)
    assert len(report.results) == 9
    assert len(started) == 2
    report = Replayer(workflows=WORKFLOWS, activities=ACTIVITIES, hash_seeds=[3]).replay_many(
        sorted(OLD.glob("sparse-*.json"))
    )
    assert len(report.results) == 10


async def test_a_process_that_dies_fails_one_replay_and_what_the_code_prints_is_no_answer(capfd):
    fatal, fine = await history_of(Talking, "5"), await history_of(Talking, "")
    capfd.readouterr()
    report = Replayer(workflows=[Talking], guard="off", hash_seeds=[5]).replay_many(
        [fatal, fine], raise_on_failure=False
    )
    assert [(r.hash_seed, r.passed) for r in report.results] == [
        (None, True),
        (5, False),
        (None, True),
        (5, True),
    ]
    assert report.results[1].failure.kind == "crashed"
    assert report.results[1].failure.message == "the process of this replay died with exit code 7"
    out, err = capfd.readouterr()
    assert out.count("this is no answer") == 2  # of this process
    assert err.count("nor is this") == 2  # of the others


async def test_interceptors_and_converters_go_along():
    history = await history_of(Pointing, Point(3), interceptors=[Waits()], converters=[POINT])
    options = {"interceptors": [Waits()], "converters": [POINT], "hash_seeds": [1]}
    assert len(Replayer(workflows=[Pointing], **options).replay(history).results) == 2


async def test_a_test_module_of_pytest_is_loaded_from_its_file():
    history = await history_of(Here)
    assert Replayer(workflows=[Here], activities=ACTS, hash_seeds=[1]).replay(history).passed


def test_a_workflow_inside_a_function_cannot_be_imported():
    @workflow.defn
    class Inside:
        @workflow.run
        async def run(self) -> None: ...

    with pytest.raises(
        ValueError,
        match=r"hash_seeds: workflow 'test_a_workflow_inside.*<locals>\.Inside' of module .* cannot be imported: it is "
        r"made inside a function\. Move it to the top level of a module .* or leave hash_seeds out",
    ):
        Replayer(workflows=[Inside], hash_seeds=[0])
    assert Replayer(workflows=[Inside])


def test_a_workflow_of_the_main_module_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(Here, "__module__", "__main__")
    with pytest.raises(
        ValueError, match="workflow 'Here' of module '__main__' cannot be imported by another process"
    ):
        Replayer(workflows=[Here], hash_seeds=[0])


def test_a_name_that_means_something_else_cannot_be_imported():
    with pytest.raises(
        ValueError, match="workflow 'Hidden' of module .* that name is not there, or is something else"
    ):
        Replayer(workflows=[HIDDEN], hash_seeds=[0])


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(
        ValueError, match="hash_seeds: the interceptors and converters go to other processes by pickle"
    ):
        Replayer(workflows=[Feature], interceptors=[Closure()], hash_seeds=[0])


async def test_a_module_that_only_this_process_has_is_named(monkeypatch):
    module = types.ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", module)
    monkeypatch.setattr(module, "Here", Here, raising=False)
    history = await history_of(Here)
    monkeypatch.setattr(Here, "__module__", "only_here")
    replayer = Replayer(workflows=[Here], hash_seeds=[0])
    with pytest.raises(
        ValueError,
        match="another process cannot import what it needs: ModuleNotFoundError: No module named 'only_here'",
    ):
        replayer.replay(history)


def test_the_processes_are_gone_behind_the_replay(tmp_path):
    before = {name for name in os.listdir("/proc") if name.isdecimal()} if sys.platform == "linux" else set()
    Replayer(workflows=[Feature], hash_seeds=[0]).replay(GOOD / "activity.json")
    if sys.platform == "linux":
        children = []
        for name in {name for name in os.listdir("/proc") if name.isdecimal()} - before:
            try:
                with open(f"/proc/{name}/stat") as stat:
                    children.append(int(stat.read().rpartition(")")[2].split()[1]))
            except FileNotFoundError:
                continue
        assert os.getpid() not in children
