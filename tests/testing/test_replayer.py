"""The Replayer: what it takes, what it needs, and how it says what does not fit."""

import asyncio
import json
import logging
import shutil
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pytest
from support.codecs import encrypted
from support.corpus import GOOD
from support.corpus_workflows import ACTIVITIES, WORKFLOWS, Feature, Kid
from support.hosting import hosted

from everact import ApplicationError, activity, workflow
from everact.cluster.wire import history_rows
from everact.exceptions import EveractError, RegistrationError, ReplayFailedError
from everact.journal.export import export_runs
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryJournal
from everact.payloads import TypeConverter, ZstdCodec
from everact.testing import Replayer, ReplayFailure, ReplayReport, ReplayResult

called: list[str] = []


@activity.defn
async def notes(text: str) -> str:
    called.append(text)
    return text


@workflow.defn
class Noting:
    @workflow.run
    async def run(self, text: str) -> str:
        workflow.logger.warning("this is logged once")
        return await notes(text)


@workflow.defn
class ByName:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity("notes", "x")


async def history_of(cls, *args, **options):
    async with hosted(MemoryJournal(), cls, activities=[notes, *ACTIVITIES], **options) as runtime:
        handle = await runtime.spawn(cls, *args)
        await handle.result()
        return await handle.fetch_history()


# --- what it takes


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


POINT = TypeConverter(Point, store=lambda point: point.x, load=Point)


@workflow.defn
class Moves:
    @workflow.run
    async def run(self, point: Point) -> int:
        return point.x if await notes("moved") else 0


async def test_a_replayer_has_what_a_runtime_has():
    options = {"converters": [POINT], "codecs": [encrypted()]}
    async with hosted(MemoryJournal(), Moves, activities=[notes], **options) as runtime:
        handle = await runtime.spawn(Moves, Point(3))
        assert await handle.result() == 3
        replayer = Replayer.of_runtime(runtime)
        history = await handle.fetch_history()
    assert replayer.replay(history).passed
    report = Replayer(workflows=[Moves]).replay(history, raise_on_failure=False)
    assert report.failures_by_kind == {"undecodable": 1}
    with pytest.raises(TypeError, match=r"of_runtime takes a Runtime, not \[\]"):
        Replayer.of_runtime([])
    with pytest.raises(ValueError, match="a hash seed is a whole number from 0 to 4294967295, not -1"):
        Replayer.of_runtime(runtime, hash_seeds=[-1])


async def test_a_history_of_a_handle_replays_where_an_event_loop_runs_and_no_activity_does(caplog):
    history = await history_of(Noting, "once")
    called.clear()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        report = Replayer(workflows=[Noting]).replay(history)
    assert called == []
    assert caplog.records == []
    (result,) = report.results
    assert result.passed
    assert (result.workflow_type, result.run_id, result.source, result.events) == (
        "Noting",
        history.run_id,
        "",
        len(history),
    )
    assert asyncio.get_running_loop()


def test_a_document_its_text_and_its_file_are_the_same():
    path = GOOD / "activity.json"
    text = path.read_text()
    replayer = Replayer(workflows=[Feature])
    results = [replayer.replay(one).results[0] for one in (path, str(path), text, json.loads(text))]
    assert [result.source for result in results] == [str(path), str(path), "", ""]
    assert len({(result.run_id, result.events, result.passed) for result in results}) == 1


async def test_what_the_history_command_prints_replays_too():
    history = await history_of(Noting, "x")
    document = {"workflow_id": history.workflow_id, "run_id": history.run_id}
    document["records"] = json.loads(json.dumps(list(history_rows(history))))
    assert Replayer(workflows=[Noting]).replay(document).results[0].events == len(history)
    document["records"].pop(0)
    with pytest.raises(ReplayFailedError, match="the history does not begin with the start of a run"):
        Replayer(workflows=[Noting]).replay(document)
    document["records"][0].pop("at")
    with pytest.raises(ReplayFailedError, match=r"the history of run '\w+' is damaged: record 1: KeyError"):
        Replayer(workflows=[Noting]).replay(document)


async def test_a_handle_is_no_history():
    async with hosted(MemoryJournal(), Noting, activities=[notes]) as runtime:
        handle = await runtime.spawn(Noting, "x")
        with pytest.raises(TypeError, match=r"not WorkflowHandle: await its fetch_history\(\) first"):
            Replayer(workflows=[Noting]).replay(handle)
        await handle.result()
    with pytest.raises(TypeError, match="a history is what fetch_history.. gave, .* not int"):
        Replayer(workflows=[Noting]).replay(7)
    with pytest.raises(FileNotFoundError):
        Replayer(workflows=[Noting]).replay("nowhere.json")


@pytest.fixture
def lines(tmp_path):
    """A file of three exported runs, the second of which is damaged."""
    path = tmp_path / "many.jsonl"
    good = json.dumps(json.loads((GOOD / "activity.json").read_text()))
    path.write_text(f"{good}\nnonsense\n\n{good}\n")
    return path


def test_a_file_of_several_is_for_replay_many(lines):
    replayer = Replayer(workflows=[Feature])
    with pytest.raises(ValueError, match=r"many\.jsonl holds 3 histories: replay_many\(\) takes it"):
        replayer.replay(lines)
    report = replayer.replay_many(lines, raise_on_failure=False)
    assert [(r.source, r.passed) for r in report.results] == [
        (f"{lines}, line 1", True),
        (f"{lines}, line 2", False),
        (f"{lines}, line 4", True),
    ]
    assert report.failures_by_kind == {"damaged": 1}


async def test_many_of_all_kinds_with_progress(tmp_path, lines):
    (tmp_path / "below").mkdir()
    shutil.copy(GOOD / "timer.json", tmp_path / "below")
    (tmp_path / "notes.txt").write_text("no history")
    history = await history_of(Feature, "activity")
    steps = []
    report = Replayer(workflows=WORKFLOWS).replay_many(
        [history, tmp_path, GOOD / "steps.json"],
        raise_on_failure=False,
        progress=lambda done, of: steps.append((done, of)),
    )
    assert [result.source for result in report.results] == [
        "",
        str(tmp_path / "below" / "timer.json"),
        *(f"{lines}, line {number}" for number in (1, 2, 4)),
        str(GOOD / "steps.json"),
    ]
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_history_at_all_is_an_error_and_no_success(tmp_path):
    for nothing in (tmp_path, [tmp_path], []):
        with pytest.raises(
            ValueError, match="there is no history in .* `everact journal export` writes them"
        ):
            Replayer(workflows=[Noting]).replay_many(nothing)


# --- what it needs


def test_types_that_it_was_not_given_are_named():
    report = Replayer(workflows=[Noting]).replay(GOOD / "activity.json", raise_on_failure=False)
    assert report.results[0].failure == ReplayFailure(
        "not_registered",
        "workflow type 'Feature' was not given to this Replayer; known: Noting. Pass it in "
        "Replayer(workflows=[...]).",
    )
    report = Replayer(workflows=[Feature]).replay(GOOD / "children.json", raise_on_failure=False)
    assert report.results[0].failure.kind == "not_registered"
    assert "workflow type 'Kid'" in report.results[0].failure.message
    assert Replayer(workflows=[Feature, Kid]).replay(GOOD / "children.json").passed


async def test_activities_are_needed_where_they_are_called_by_name():
    history = await history_of(ByName)
    with pytest.raises(ReplayFailedError, match=r"activity 'notes' was not given .* Replayer\(activities="):
        Replayer(workflows=[ByName]).replay(history)
    assert Replayer(workflows=[ByName], activities=[notes]).replay(history).passed
    called_directly = await history_of(Noting, "x")
    with pytest.raises(
        ReplayFailedError, match="activity 'notes' was not given to this Replayer; known: none"
    ):
        Replayer(workflows=[Noting], activities=[]).replay(called_directly)


@dataclass
class Money:
    cents: int


MONEY = TypeConverter(Money, store=lambda money: money.cents, load=Money)


@workflow.defn
class Paying:
    @workflow.run
    async def run(self, money: Money) -> Money:
        return money


@pytest.mark.parametrize("codecs", [[encrypted()], [ZstdCodec(smallest=0), encrypted()]], ids=["one", "two"])
async def test_an_export_of_an_encrypted_journal_needs_the_codecs(tmp_path, codecs):
    async with hosted(tmp_path / "journal", Noting, activities=[notes], codecs=codecs) as runtime:
        handle = await runtime.spawn(Noting, "secret" * 100)
        await handle.result()
        plain = await handle.fetch_history()
    store = LmdbStore(tmp_path / "journal", read_only=True)
    (document,) = export_runs(store, left_out=print, damaged=print, moved=print)
    store.close()
    assert "secret" not in str(document)
    replayer = Replayer(workflows=[Noting], codecs=codecs)
    assert replayer.replay(document).passed
    assert replayer.replay(plain).passed
    report = Replayer(workflows=[Noting]).replay(document, raise_on_failure=False)
    assert report.failures_by_kind == {"undecodable": 1}
    assert "pass that to Replayer(codecs=[...])" in report.results[0].failure.message
    broken = Replayer(workflows=[Noting], codecs=[encrypted_otherwise()])
    report = broken.replay(document, raise_on_failure=False)
    assert report.failures_by_kind == {"undecodable": 1}


def encrypted_otherwise():
    from everact.payloads import AesGcmCodec

    return AesGcmCodec({"k": b"x" * 32}, active="k")


def test_a_wrong_declaration_is_refused_as_by_the_runtime():
    class NoWorkflow:
        pass

    with pytest.raises(RegistrationError, match=r"lacks the @workflow\.defn decorator"):
        Replayer(workflows=[NoWorkflow])
    with pytest.raises(TypeError, match="workflows must be a list"):
        Replayer(workflows=Noting)
    with pytest.raises(TypeError, match="interceptors must be a list of Interceptor objects"):
        Replayer(workflows=[Noting], interceptors=[7])
    for seed in (-1, 1 << 32, True, "1"):
        with pytest.raises(ValueError, match="a hash seed is a whole number from 0 to 4294967295"):
            Replayer(workflows=[Noting], hash_seeds=[seed])


def test_a_replay_leaves_the_instances_behind_it_discarded():
    """A run that waits in an ``async with`` gets no chance to act."""
    assert Replayer(workflows=[Feature]).replay(GOOD / "open.json").passed


# --- what it says


def bad(name):
    return GOOD.parent / "bad" / f"{name}.json"


def test_a_nondeterminism_is_reported_in_parts():
    report = Replayer(workflows=WORKFLOWS).replay(bad("retries"), raise_on_failure=False)
    failure = report.results[0].failure
    assert failure.kind == "nondeterminism"
    assert failure.expected == "command 3: activity 'other'"
    assert failure.actual == "command 3: activity 'add'"
    assert failure.last_common == "command 2: activity 'unlucky'"
    assert failure.event == 7
    assert failure.file.endswith("corpus_workflows.py")
    assert failure.line > 0
    assert failure.place == f"{failure.file}:{failure.line}"
    with open(failure.file) as lines:
        assert "add(1)" in lines.readlines()[failure.line - 1]
    report = Replayer(workflows=WORKFLOWS).replay(bad("missing"), raise_on_failure=False)
    failure = report.results[0].failure
    assert (failure.place, failure.file, failure.line) == ("after the end of run", "", 0)


def test_the_error_says_all_of_it_and_has_the_report():
    with pytest.raises(ReplayFailedError) as caught:
        Replayer(workflows=WORKFLOWS).replay_many([bad("timer"), GOOD / "timer.json", bad("damaged-gap")])
    error = caught.value
    assert isinstance(error, AssertionError)
    assert isinstance(error, EveractError)
    assert len(error.report.results) == 3
    text = str(error)
    assert "1 passed, 2 failed (1 nondeterminism, 1 damaged)" in text
    assert "FAILED, nondeterminism: 'timer' (Feature, run " in text
    assert f"), {bad('timer')}\n    the history has: command 1: a timer of 0.002 s\n" in text
    assert f"FAILED, damaged: {bad('damaged-gap')}\n    the exported run" in text
    assert "passed: " not in text


REPORT = ReplayReport(
    (
        ReplayResult("Order", "o-1", "r1", "", 7, 0.25),
        ReplayResult(
            "Order", "o-2", "r2", "a.json", 1200, 0.5, 42, ReplayFailure("crashed", "the code \x00 raised")
        ),
    ),
    1.0,
)


def test_the_report_as_text():
    assert REPORT.as_text() == (
        "2 replays with 1,207 events in 1.00 s: 1 passed, 1 failed (1 crashed)\n"
        "passed: 'o-1' (Order, run r1): 7 events in 0.250 s\n"
        "FAILED, crashed: 'o-2' (Order, run r2), a.json, under PYTHONHASHSEED=42\n"
        "    the code \x00 raised"
    )
    many = ReplayReport(REPORT.results[:1] * 21)
    assert many.as_text() == "21 replays with 147 events in 0.00 s: 21 passed"


def test_the_report_as_data_is_json():
    data = json.loads(json.dumps(REPORT.as_data()))
    assert data["passed"] is False
    assert data["failures_by_kind"] == {"crashed": 1}
    assert data["results"][0]["failure"] is None
    assert data["results"][1]["failure"]["kind"] == "crashed"
    assert data["results"][1]["hash_seed"] == 42


def test_the_report_as_junit_is_xml_whatever_a_run_has_said():
    suite = ET.fromstring(REPORT.as_junit())
    assert suite.attrib == {
        "name": "everact replay", "tests": "2", "failures": "1", "errors": "0", "time": "1.000",
    }  # fmt: skip
    first, second = suite
    assert first.attrib == {"classname": "Order", "name": "o-1 r1", "time": "0.250"}
    assert second.attrib["name"] == "o-2 r2 PYTHONHASHSEED=42"
    assert second.attrib["file"] == "a.json"
    (failure,) = second
    assert failure.attrib == {"type": "crashed", "message": "the code ? raised"}


def test_a_report_that_passed_raises_nothing():
    ReplayReport(REPORT.results[:1]).raise_for_failures()
    with pytest.raises(ReplayFailedError, match="the code"):
        REPORT.raise_for_failures()


async def test_code_that_raises_now_crashes_the_replay_with_its_trace():
    history = await history_of(Noting, "x")

    @workflow.defn(name="Noting")
    class Broken:
        @workflow.run
        async def run(self, text: str) -> str:
            return {}["missing"]

    failure = Replayer(workflows=[Broken]).replay(history, raise_on_failure=False).results[0].failure
    assert failure.kind == "crashed"
    assert failure.message == "the code raised KeyError: 'missing'"
    assert 'return {}["missing"]' in failure.trace

    @workflow.defn(name="Noting")
    class Failing:
        @workflow.run
        async def run(self, text: str) -> str:
            raise ApplicationError("no")

    failure = Replayer(workflows=[Failing]).replay(history, raise_on_failure=False).results[0].failure
    assert failure.kind == "nondeterminism"
    assert failure.actual == "the end of run (it failed: ApplicationError)"


async def test_converters_are_those_of_the_runtime():
    history = await history_of(Paying, Money(7), converters=[MONEY])
    assert Replayer(workflows=[Paying], converters=[MONEY]).replay(history).passed
    report = Replayer(workflows=[Paying]).replay(history, raise_on_failure=False)
    assert report.failures_by_kind == {"undecodable": 1}


@workflow.defn
class Stepped:
    @workflow.step
    async def step(self) -> int:
        return int(await notes("inside") == "inside")

    @workflow.run
    async def run(self) -> int:
        return await self.step() + await self.step()


async def test_bodies_of_steps_are_replayed_on_request():
    history = await history_of(Stepped)
    for jump_steps in (True, False):
        assert Replayer(workflows=[Stepped], jump_steps=jump_steps).replay(history).passed

    @workflow.defn(name="Stepped")
    class Changed:
        @workflow.step
        async def step(self) -> int:
            await workflow.sleep(1)
            return 1

        @workflow.run
        async def run(self) -> int:
            return await self.step() + await self.step()

    assert Replayer(workflows=[Changed]).replay(history).passed
    report = Replayer(workflows=[Changed], jump_steps=False).replay(history, raise_on_failure=False)
    assert report.results[0].failure.actual == "command 2: a timer of 1 s"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(GOOD.glob("s*.json"))])
def test_every_history_with_steps_replays_in_both_ways(path):
    assert Replayer(workflows=WORKFLOWS, activities=ACTIVITIES, jump_steps=False).replay(path).passed
