"""``everact timeline``: what a run did when, as text, Mermaid and HTML that nothing of the run can break out of."""

import asyncio
import json
import re
from html.parser import HTMLParser

import pytest
from support.debugged_workflows import Bill, charge, refuse
from support.histories import FOLDER
from support.histories import read as stored

from everact import Runtime, workflow
from everact.actors.descriptions import History
from everact.exceptions import WorkflowFailedError
from everact.history_files import find_run, read_histories
from everact.testing import TestEnvironment
from everact.timeline.html import html_of
from everact.timeline.mermaid import mermaid_of
from everact.timeline.model import CANCELLED, DONE, FAILED, LEFT, OPEN, timeline_of
from everact.timeline.scale import Axis

PATHS = sorted(FOLDER.glob("*.json"))
EVIL = "<script>alert('1')</script>\"&\n%%{init: {}}%% :crit, #x; title"


def read(name):
    return of(FOLDER / f"{name}.json")


def of(path):
    """Of a committed history."""
    records = stored(path)[1]
    started = records[0][1].inputs[0]
    return timeline_of(History(started.workflow_id, started.run_id, records))


def spans(timeline, kind):
    return [(span.label, span.outcome, len(span.parts)) for span in timeline.spans if span.kind == kind]


# --- what is read


def test_attempts_messages_timers_and_a_cancelled_activity():
    seen = read("everything-completed")
    assert seen.status == "completed"
    assert seen.spans[0].kind == "run"
    assert spans(seen, "activity") == [
        ("unlucky", DONE, 2),
        ("unlucky", FAILED, 2),
        ("alpha", CANCELLED, 1),
    ]
    failed = next(span for span in seen.spans if span.label == "unlucky")
    assert [part.outcome for part in failed.parts] == [FAILED, DONE]
    assert failed.parts[1].start > failed.parts[0].end  # the wait before the next attempt
    assert ("60 min", CANCELLED, 0) in spans(seen, "timer")
    assert {label for label, _, _ in spans(seen, "signal")} >= {"note", "end"}
    assert FAILED in {outcome for _, outcome, _ in spans(seen, "update")}
    assert spans(seen, "dead letter")


def test_steps_and_compensations_are_spans():
    seen = read("steps-completed")
    inner = [span.depth for span in seen.spans if span.kind == "step" and span.label == "plain"]
    assert 2 in inner
    assert ("retried", DONE, 6) in spans(seen, "step")
    seen = read("saga-escalated")
    assert ("saga escalated: undo car by unbook", DONE, 0) in spans(seen, "compensation")
    assert [outcome for _, outcome, _ in spans(seen, "escalation")] == [FAILED, FAILED]


def test_children_and_messages_to_other_runs():
    seen = read("kin")
    assert spans(seen, "child")
    assert spans(seen, "signal sent")
    assert {outcome for _, outcome, _ in spans(seen, "child")} >= {DONE, FAILED}


async def test_a_child_that_took_too_long_is_shown_with_its_limit():
    @workflow.defn
    class Slow:
        @workflow.run
        async def run(self) -> None:
            await workflow.sleep(60)

    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_child_workflow(Slow, run_timeout=5)

    async with TestEnvironment(workflows=[Slow, Waits]) as env:
        handle = await env.spawn(Waits)
        with pytest.raises(WorkflowFailedError):
            await handle.result()
        seen = timeline_of(await handle.fetch_history())
    (child,) = [span for span in seen.spans if span.kind == "child"]
    assert child.detail == "WorkflowTimeoutError: the run took longer than run_timeout=5 s"


def test_what_an_ended_run_leaves_is_left_and_what_an_open_run_waits_for_is_open():
    assert LEFT in {span.outcome for span in read("everything-terminated").spans}
    open_run = read("everything-open")
    assert open_run.status == "open"
    assert open_run.spans[0].outcome == OPEN
    assert read("everything-stalled").spans[1].kind in {"quarantined", "held"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_event_of_the_corpus_has_a_place(path):
    seen = of(path)
    shown = {number for span in seen.spans for number in span.events}
    silent = {
        "RandomDrawn", "SignalKept", "SignalTaken", "RunReleased", "RunResumed",
    }  # fmt: skip
    for event in seen.history:
        assert event.number in shown or event.kind in silent, event
    for scale in ("time", "events"):
        axis = Axis(seen, scale)
        places = [axis.place(span.start) for span in seen.spans]
        assert places == sorted(places)
        assert all(0 <= place <= 1 for place in places)


# --- Mermaid, by a grammar of its lexer (gantt.jison)


HEAD = re.compile(
    r"gantt\n    title [^#\n;]+\n    dateFormat x\n    axisFormat [^#\n;:]+\n    todayMarker off\n"
)
SECTION = re.compile(r"    section [^#:\n;]+\n")
TASK = re.compile(
    r"    (?!\s*(?:title|section|click|href|call|gantt|dateFormat|axisFormat|tickInterval|includes|excludes|"
    r"todayMarker|weekday|accTitle|accDescr|inclusiveEndDates|topAxis)\b)[^#:\n;%]+ :"
    r"(?:milestone, )?(?:(?:done|crit|active), ){0,2}(?P<id>s\d+(?:p\d+)?), (?P<start>\d{13}), "
    r"(?:(?P<end>\d{13})|0ms)\n"
)


def parsed(text):
    """Ids of the tasks; fails on anything that the grammar does not have."""
    place = HEAD.match(text).end()
    ids = []
    while place < len(text):
        found = SECTION.match(text, place) or TASK.match(text, place)
        assert found, text[place : place + 200]
        place = found.end()
        if found.re is TASK:
            assert found["end"] is None or int(found["end"]) > int(found["start"])
            ids.append(found["id"])
    return ids


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_mermaid_follows_the_grammar(path):
    seen = of(path)
    ids = parsed(mermaid_of(seen))
    assert len(ids) == len(set(ids))
    assert sum("p" not in each for each in ids) == len(seen.spans)


# --- HTML


class Page(HTMLParser):
    """What a browser would see: tags, attributes, and text outside of style."""

    VOID = frozenset(["meta", "br"])

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def page(html):
    found = Page()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th",
    "td", "div", "i", "b", "small", "br", "a", "details", "summary", "pre",
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_html_is_whole_and_loads_nothing(path):
    html = html_of(of(path), "time")
    seen = page(html)
    assert seen.tags <= TAGS
    assert {name for name, _ in seen.attributes} <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "style", "title", "href", "id",
    }  # fmt: skip
    assert all(value.startswith("#e") for name, value in seen.attributes if name == "href")
    assert "url(" not in html
    assert "default-src 'none'; style-src 'unsafe-inline'" in html


def evil(tmp_path):
    """A history in which every text that somebody else chooses is hostile."""
    document = json.loads(json.dumps(_exported(tmp_path)))
    found = 0

    def spoil(value):
        nonlocal found
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in {
                    "tag",
                    "event",
                    "encoding",
                    "kind",
                    "digest",
                    "base64",
                    "run_id",
                    "format",
                    "workflow_type",
                }:
                    continue
                if isinstance(inner, str) and inner:
                    value[key] = EVIL
                    found += 1
                else:
                    spoil(inner)
            if value.get("event") == "WorkflowStarted":
                value["workflow_type"] = EVIL
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                if isinstance(inner, str):
                    value[index] = EVIL
                else:
                    spoil(inner)

    spoil(document)
    document["workflow_type"] = document["workflow_id"] = EVIL
    assert found > 20
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(document))
    return path


def _exported(tmp_path):
    async def live():
        async with Runtime(tmp_path / "journal", workflows=[Bill], activities=[charge, refuse]) as runtime:
            handle = await runtime.spawn(Bill, 5, id="b-1")
            await handle.signal("approve", "ada")
            await handle.execute_update("note", "hi")
            await handle.result()
            return await handle.fetch_history()

    from everact.cluster.wire import history_rows

    history = asyncio.run(live())
    rows = list(history_rows(history))
    return {"workflow_id": history.workflow_id, "run_id": history.run_id, "records": rows}


def test_hostile_ids_and_payloads_stay_text(tmp_path, capsys):
    path = evil(tmp_path)
    seen = timeline_of(find_run(read_histories(path), path))
    assert seen.workflow_id == EVIL
    html = html_of(seen, "time")
    whole = page(html)
    assert whole.tags <= TAGS
    assert "<script" not in html.lower()
    assert not any(name.startswith("on") for name, _ in whole.attributes)
    assert "<script>alert('1')</script>" in "".join(whole.text)  # and is shown as it is
    parsed(mermaid_of(seen))
    assert "<" not in mermaid_of(seen)


def test_text_cannot_move_the_cursor_or_be_markup(tmp_path, everact):
    document = _exported(tmp_path)
    document["records"][0]["inputs"][0]["workflow_type"] = "[red]\x1b[2J\u202e[/red]"
    path = tmp_path / "h.json"
    path.write_text(json.dumps(document))
    code, out, err = everact("timeline", str(path), journal=None)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "run [red]\\x1b[2J\\u202e[/red]: done" in out


# --- the command


def test_of_a_file_of_a_closed_journal_and_into_a_file(tmp_path, everact):
    document = _exported(tmp_path)
    path = tmp_path / "h.json"
    path.write_text(json.dumps(document))
    code, out, err = everact("timeline", str(path), journal=None)
    assert (code, err) == (0, "")
    assert out.startswith("'b-1' (Bill, run ")
    assert re.search(r"^2-\d+ .* step paid: done *$", out, re.MULTILINE)
    assert "      attempt 1: failed" in out
    assert everact("timeline", "b-1", journal=tmp_path / "journal") == (0, out, "")
    for form, start in (("html", "<!DOCTYPE html>\n"), ("mermaid", "gantt\n"), ("text", "'b-1' (Bill")):
        target = tmp_path / form
        done = everact("timeline", "b-1", "-f", form, "-o", str(target), journal=tmp_path / "journal")
        assert done == (0, "", "")
        assert target.read_text().startswith(start)


@pytest.mark.slow
def test_of_a_running_program(everact, tmp_journal):
    from support.door_program import Program

    with Program(tmp_journal):
        everact("start", "Waits", '{"item": "tea", "count": 3}', "--id", "o-1")
        code, out, err = everact("timeline", "o-1", "--scale", "events")
    assert (code, err) == (0, "")
    assert out.startswith("'o-1' (Waits, run ")
    assert "): open, " in out


def test_wrong_usage_says_what_is_right(everact, tmp_path, tmp_journal):
    code, _, err = everact("timeline", "b-1", "--format", "svg")
    assert (code, "--format is one of text, mermaid, html, not 'svg'" in err) == (2, True)
    code, _, err = everact("timeline", "b-1", "--scale", "log")
    assert (code, "--scale is one of time, events, not 'log'" in err) == (2, True)
    code, _, err = everact("timeline", "b-1", journal=None)
    assert code == 2
    assert "'b-1' is no file; for a workflow id give --journal DIR" in err
    file = tmp_path / "x.json"
    file.write_text("{}")
    code, out, err = everact("timeline", str(file), journal=None)
    assert (code, out) == (1, "")
    assert err.startswith(f"everact: error: {str(file)!r} holds no history: this is no exported run: ")
