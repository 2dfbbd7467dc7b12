"""``everact debug``: stops in user code because of an event, in pdb or to look."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from support import debugged_workflows
from support.debugged_workflows import Bill, charge, refuse

from everact import Runtime

FILE = Path(debugged_workflows.__file__)
LINES = FILE.read_text().splitlines()
LINE = {text.rpartition("  # ")[2]: n for n, text in enumerate(LINES, 1) if "  # " in text}
CODE = ("--module", str(FILE))


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """The run's events by kind; the file of its history is beside."""
    folder = tmp_path_factory.mktemp("debug")

    async def live():
        async with Runtime(folder / "journal", workflows=[Bill], activities=[charge, refuse]) as runtime:
            handle = await runtime.spawn(Bill, 5, id="b-1")
            while (await handle.describe()).waiting_on.partition(" ")[0] != "condition":
                await asyncio.sleep(0)
            await handle.execute_update("note", "hi")
            await handle.signal("approve", "ada")
            await handle.result()
            return await handle.fetch_history()

    history = asyncio.run(live())
    found = defaultdict(list)
    for event in history:
        found[event.kind].append(event.number)
    found["file"] = folder / "history.json"
    everact_main("journal", "export", str(folder / "journal"), "-o", str(found["file"]))
    return found


def everact_main(*arguments, stdin="", check=True):
    """Run a command as a program of its own: tracing and the guards are of the whole process."""
    done = subprocess.run(
        [sys.executable, "-m", "everact", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=FILE.parents[2],
        timeout=60,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def looked(events, number, *options):
    done = everact_main("debug", str(events["file"]), "--to-event", str(number), *CODE, "--json", *options)
    return json.loads(done.stdout)


def innermost(seen):
    frame = seen["tasks"][0]["frames"][-1]
    return frame["line"], frame["function"]


CRASHING = """\
import asyncio

from everact import Runtime, workflow
from everact.interceptors import Interceptor, WorkflowInboundInterceptor


class Waiting(WorkflowInboundInterceptor):
    async def execute_workflow(self, input):
        await workflow.sleep(0.001)
        return await self.next.execute_workflow(input)


class Later(Interceptor):
    def intercept_workflow(self, next):
        return Waiting(next)


@workflow.defn
class Crashing:
    def __init__(self) -> None:
        self.n = 0

    @workflow.signal
    async def hear(self, n: int) -> None:
        self.n = n

    @workflow.run
    async def run(self) -> float:
        await workflow.wait_condition(lambda: self.n)
        return 1 / (self.n - 1)


async def main():
    async with Runtime("j", workflows=[Crashing], interceptors=[Later()]) as runtime:
        handle = await runtime.spawn(Crashing, id="x")
        while "condition" not in (await handle.describe()).waiting_on:
            await asyncio.sleep(0)
        await handle.signal("hear", 1)
        while (await handle.describe()).status == "running":
            await asyncio.sleep(0)
"""

CASES = [
    ("WorkflowStarted", 0, "first", "Bill.__init__"),
    ("ActivityScheduled", 0, "charged", "charged"),
    ("ActivityCompleted", 0, "charged", "charged"),
    ("ConditionAwaited", 0, "condition", "Bill.run"),
    ("UpdateReceived", 0, "update", "Bill.note"),
    ("UpdateCompleted", 0, "answer", "Bill.note"),
    ("SignalReceived", 0, "signal", "Bill.approve"),
    ("ActivityScheduled", 1, "plain", "Bill.run"),
    ("ActivityScheduled", 2, "charged", "charged"),
    ("ActivityScheduled", 3, "refused", "Bill.run"),
    ("ActivityFailed", 0, "refused", "Bill.run"),
    ("TimerFired", 0, "end", "Bill.run"),
    ("WorkflowCompleted", 0, "end", "Bill.run"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "nth", "mark", "function"), CASES)
def test_it_stops_at_the_code_that_an_event_runs_or_that_decides_it(events, kind, nth, mark, function):
    seen = looked(events, events[kind][nth])
    assert seen["event"]["kind"] == kind
    assert seen["notes"] == []
    assert innermost(seen) == (LINE[mark], function)


@pytest.mark.slow
def test_a_line_inside_a_step_that_is_a_checkpoint_is_reached(events):
    seen = looked(events, events["StepCompleted"][0])
    assert innermost(seen)[1] == "Bill.paid"
    assert seen["object"] == {"approved": "False", "notes": "['receipt-5']"}


@pytest.mark.slow
def test_all_tasks_are_shown_with_what_they_wait_for_and_what_is_in_flight(events):
    number = events["ActivityScheduled"][2]
    seen = looked(events, number)
    names = {task["name"]: task for task in seen["tasks"]}
    assert names["main"]["is_running"] is False
    assert names["main"]["frames"][0]["locals"]["amount"] == "5"
    assert seen["tasks"][0]["is_running"]
    assert [one["what"] for one in seen["in_flight"]] == ["activity 'charge'"]
    waiting = [task["waits_for"] for task in seen["tasks"] if task["waits_for"].startswith("activity")]
    text = everact_main("debug", str(events["file"]), "--to-event", str(number), *CODE, "--no-pdb").stdout
    assert f"'b-1' (Bill, run {seen['run_id']}), event {number} " in text
    assert "      amount = 5\n" in text
    assert "  command " in text
    assert all(what in text for what in waiting)
    assert "  approved = True\n" in text


@pytest.mark.slow
def test_an_event_that_runs_no_code_stops_at_what_runs_next(events):
    seen = looked(events, events["ActivityCompleted"][1])
    assert seen["notes"] == ["no code of the workflow runs because of it: this is what runs next"]
    assert innermost(seen) == (LINE["charged"], "charged")


@pytest.mark.slow
def test_pdb_has_the_run_and_goes_on_over_its_turns_to_the_end_of_the_history(events):
    number = events["ActivityCompleted"][0]
    commands = (
        "w\np self.notes if 'self' in dir() else None\nn\nn\nn\np receipt\nev\nev tasks\nev history\n"
        "ev history 1\nev odd\nb 99999\nrun\nc\n"
    )
    done = everact_main("debug", str(events["file"]), "--to-event", str(number), *CODE, stdin=commands)
    out = done.stdout
    assert out.startswith("'b-1' (Bill, run ")
    assert (
        "charged()->'receipt-5'\n-> return await workflow.execute_activity(charge, amount)  # charged" in out
    )
    assert f"{FILE}({LINE['in the step']})paid()" in out
    assert "'receipt-5'\n" in out
    assert "task main: runs\n" in out
    assert f"-> {number} " in out
    assert "   1 " in out
    assert '"workflow_id":"b-1"' in out
    assert "the history cannot begin again here: leave with q and start the command again" in out
    assert out.endswith("the history ends here: the run has ended (WorkflowCompleted)\n")
    assert "typer" not in out  # the frames around the turn are not shown


@pytest.mark.slow
def test_going_on_to_the_end_of_a_waiting_run_says_what_it_waits_for_and_where(tmp_path):
    async def live():
        async with Runtime(tmp_path / "journal", workflows=[Bill], activities=[charge, refuse]) as runtime:
            handle = await runtime.spawn(Bill, 5, id="b-1")
            while (await handle.describe()).waiting_on.partition(" ")[0] != "condition":
                await asyncio.sleep(0)

    asyncio.run(live())
    history = tmp_path / "h.json"
    everact_main("journal", "export", str(tmp_path / "journal"), "-o", str(history))
    done = everact_main("debug", str(history), "--to-event", "1", *CODE, stdin="c\n")
    line = f"the history ends here: the run waits for a condition, at {FILE}:{LINE['condition']}"
    assert done.stdout.endswith(f" {line}\n")


@pytest.mark.slow
def test_a_breakpoint_is_met_in_a_later_turn(events):
    commands = f"b {FILE}:{LINE['end']}\nc\np receipt, again.result()\nq\n"
    done = everact_main("debug", str(events["file"]), "--to-event", "1", *CODE, stdin=commands)
    assert "('receipt-5', 'receipt-7')\n" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["n", "r"])
def test_stepping_over_the_end_of_a_coroutine_stops_there_and_in_the_next_turn(events, step):
    number = str(events["UpdateReceived"][0])
    commands = f"n\n{step}\nn\nq\n"
    done = everact_main("debug", str(events["file"]), "--to-event", number, *CODE, stdin=commands)
    assert f"--Return--\n> {FILE}({LINE['answer']})note()->2\n" in done.stdout
    assert re.search(rf"--Call--\n> {re.escape(str(FILE))}\(\d+\)approve\(\)\n", done.stdout)


@pytest.mark.slow
def test_a_quarantined_run_is_stopped_in_the_turn_that_crashes_with_its_interceptors(tmp_path):
    flow = tmp_path / "crashing.py"
    flow.write_text(CRASHING)
    program = "import asyncio, sys; sys.path.insert(0, ''); import crashing; asyncio.run(crashing.main())"
    path = ":".join(entry for entry in (str(FILE.parents[2]), os.environ.get("PYTHONPATH", "")) if entry)
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=tmp_path,
        timeout=60,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    history = tmp_path / "h.json"
    everact_main("journal", "export", str(tmp_path / "j"), "-o", str(history))
    options = (str(history), "--to-event", "5", "--module", str(flow))
    done = everact_main("debug", *options, "--interceptor", "crashing:Later", "--json")
    seen = json.loads(done.stdout)
    assert seen["event"]["kind"] == "SignalReceived"
    assert seen["notes"][0].startswith("in this turn the code raises ZeroDivisionError: division by zero (")
    assert innermost(seen)[1] == "Crashing.hear"
    done = everact_main("debug", *options, "--interceptor", "crashing:Later", stdin="c\n")
    assert "the replay ends here: the code raises ZeroDivisionError: division by zero (" in done.stdout
    code, said = failing(*options)
    assert code == 1
    assert "the journal has command 1: a timer of 0.001 s" in said


@pytest.mark.slow
@pytest.mark.parametrize("commands", ["q\n", ""])
def test_leaving_pdb_is_no_error_and_runs_no_more_code(events, commands):
    number = str(events["SignalReceived"][0])
    done = everact_main("debug", str(events["file"]), "--to-event", number, *CODE, stdin=commands)
    assert "ends here" not in done.stdout
    assert done.stderr == ""


def failing(*arguments):
    done = everact_main("debug", *map(str, arguments), check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.slow
def test_errors_say_what_is_wrong_and_what_to_do(events, tmp_path):
    file = events["file"]
    code, said = failing(file, "--to-event", 999, *CODE)
    assert code == 1
    assert re.match(
        r"everact: error: there is no event 999: the history of 'b-1' \(run \w+\) has events 1 to \d+\n", said
    )
    lost = events["AttemptFailed"][0]
    code, said = failing(file, "--to-event", lost, *CODE)
    assert code == 1
    assert f"workflow code never sees event {lost} (AttemptFailed)" in said
    assert f"--to-event {lost + 1} (ActivityFailed)" in said
    code, said = failing(file, "--to-event", 1)
    assert code == 2
    assert "say where the code is: --module FILE or --workflows MODULE[:NAME]" in said
    code, said = failing(file, "--to-event", 1, "--module", tmp_path / "nope.py")
    assert (code, "there is no file" in said) == (1, True)
    code, said = failing(file, "--to-event", 1, "--workflows", "nope.flows:Bill")
    assert "there is no module 'nope' ('nope.flows:Bill')" in said
    code, said = failing(file, "--to-event", 1, "--workflows", "support.debugged_workflows:Nope")
    assert "there is no module 'support'" in said
    (tmp_path / "empty.py").write_text("")
    code, said = failing(file, "--to-event", 1, "--module", tmp_path / "empty.py")
    assert "workflow type 'Bill' is not in the code that was loaded (it has: none)" in said
    code, said = failing(tmp_path / "empty.py", "--to-event", 1, *CODE)
    assert code == 1
    assert "empty.py' holds no history: this is no exported run: it is no JSON" in said
    code, said = failing(file, "--to-event", 1, *CODE, "--id", "b-2")
    assert "has no run of workflow id 'b-2'; it has: 'b-1' (run " in said


@pytest.mark.slow
def test_code_that_decides_otherwise_before_the_event_is_told_and_can_be_stopped_at(events, tmp_path):
    changed = tmp_path / "changed.py"
    changed.write_text(
        FILE.read_text().replace("await workflow.execute_activity(refuse)", "await workflow.sleep(7)")
    )
    turn = events["ActivityCompleted"][2]
    code, said = failing(events["file"], "--to-event", events["TimerFired"][0], "--module", changed)
    assert code == 1
    assert "the code cannot be brought to event" in said
    assert "replay differs from the journal at event" in said
    assert "the code did command 5: a timer of 7 s" in said
    at = re.search(r"`--to-event (\d+)` stops in the turn that differs", said)[1]
    assert int(at) == turn
    done = everact_main("debug", str(events["file"]), "--to-event", at, "--module", str(changed), "--no-pdb")
    assert "in this turn replay differs from the journal" in done.stdout


@pytest.mark.slow
def test_activities_that_are_not_loaded_are_named(events, tmp_path):
    part = tmp_path / "part.py"
    text = FILE.read_text()
    part.write_text(text.replace("@activity.defn\nasync def charge", "async def charge"))
    code, said = failing(events["file"], "--to-event", 1, "--module", part)
    assert code == 1
    assert "activities of the history are not in the code that was loaded: 'charge'" in said


@pytest.mark.slow
def test_a_run_that_stands_still_is_stopped_in_the_code_that_raises(tmp_path):
    flow = tmp_path / "flow.py"
    flow.write_text(
        "from everact import workflow\n\n@workflow.defn\nclass Bad:\n    @workflow.signal\n"
        "    def hear(self, n: int) -> None:\n        self.share = 1 // n\n\n    @workflow.run\n"
        "    async def run(self) -> None:\n        await workflow.wait_condition(lambda: False)\n"
    )
    program = (
        "import asyncio, sys\nsys.path.insert(0, sys.argv[1])\nfrom flow import Bad\nfrom everact import Runtime\n"
        "class Worse(Bad): pass\n"
        "async def main():\n"
        "    async with Runtime(sys.argv[1] + '/journal', workflows=[Bad]) as runtime:\n"
        "        handle = await runtime.spawn(Bad, id='x')\n"
        "        await handle.signal('hear', 0)\n"
        "        while (await handle.describe()).status == 'running' and not (await handle.describe()).dead_letters:\n"
        "            await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=True,
        cwd=FILE.parents[2],
        timeout=60,
        capture_output=True,
    )
    history = tmp_path / "h.json"
    everact_main("journal", "export", str(tmp_path / "journal"), "-o", str(history))
    records = json.loads(history.read_text())["records"]
    events = [event for record in records for event in (*record["inputs"], *record.get("outputs", ()))]
    number = next(n for n, event in enumerate(events, 1) if event["event"] == "SignalReceived")
    done = everact_main("debug", str(history), "--to-event", str(number), "--module", str(flow), "--json")
    seen = json.loads(done.stdout)
    assert innermost(seen) == (7, "Bad.hear")
    assert seen["tasks"][0]["frames"][-1]["locals"]["n"] == "0"


@pytest.mark.slow
def test_every_event_of_the_corpus_that_code_sees_has_a_place():
    """Nothing of it may raise, whatever the history holds."""
    program = Path(__file__).with_name("debug_corpus_program.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (program.parents[2], program.parents[1])))},
    )
    assert done.returncode == 0, done.stderr
