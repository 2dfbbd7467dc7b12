"""The commands that talk to a running program, and those of them that read a closed journal."""

import json

import pytest
from support.door_program import Program


@pytest.fixture
def program(tmp_journal):
    with Program(tmp_journal) as running:
        yield running


def data(answer):
    code, out, err = answer
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.slow
def test_a_run_from_its_start_to_its_end_and_after_the_program(everact, program):
    code, out, err = everact("start", "Waits", '{"item": "tea", "count": 3}', "--id", "o-1")
    assert (code, err) == (0, "")
    assert out.startswith("'o-1' runs (run ")
    started = data(everact("start", "Waits", "--id", "o-1", "--if-running", "attach", "--json"))
    assert started["run_id"] in out
    assert started["address"] == f"everact://local/o-1/{started['run_id']}"
    assert everact("signal", "o-1", "hear", '"one"') == (0, "'hear' was received by 'o-1'\n", "")
    assert data(everact("signal", "o-1", "hear", '"two"', "--request-id", "r", "--json")) == {}
    assert data(everact("signal", "o-1", "hear", '"two"', "--request-id", "r", "--json")) == {}
    assert data(everact("query", "o-1", "words")) == ["one", "two"]
    assert data(everact("query", "o-1", "raw", "--json")) == {"result": {"$bytes": "AHJhdw=="}}
    assert data(everact("update", "o-1", "add", '{"item": "three"}')) == 3
    assert data(everact("update", "o-1", "until", '"one"', "--json")) == {"result": 0}
    assert everact("count", "--status", "running") == (0, "1\n", "")
    shown = everact("describe", "o-1")[1]
    assert "status:           running\n" in shown
    assert "waiting on:       condition at " in shown
    assert data(everact("describe", "o-1", "--json"))["waiting_on"].startswith("condition at ")
    code, out, err = everact("result", "o-1", "--timeout", "0.01")
    assert (code, out) == (4, "")
    assert err.startswith(
        "everact: error: workflow 'o-1' had no result within 0.01 s; it goes on (waiting on: "
    )
    everact("signal", "o-1", "finish", '"end"')
    answer = {"item": "one,two,three,end", "count": 3}
    assert data(everact("result", "o-1")) == answer
    assert data(everact("result", "o-1", "--run-id", started["run_id"], "--json")) == {"result": answer}
    everact("start", "Waits", "--id", "o-2")
    assert everact("cancel", "o-2", "--reason", "late") == (0, "'o-2' was asked to cancel itself\n", "")
    code, out, err = everact("result", "o-2")
    assert (code, out) == (1, "")
    assert "workflow 'o-2' (run " in err
    assert "was cancelled: late" in err
    everact("start", "Waits", "--id", "o-3")
    assert data(everact("terminate", "o-3", "--json")) == {}
    everact("start", "Waits", "--id", "o-4")
    assert everact("pause", "o-4", "--reason", "a look") == (0, "'o-4' is paused\n", "")
    assert "paused:           a look" in everact("describe", "o-4")[1]
    code, out, err = everact("release", "o-4")
    assert (code, out) == (1, "") and "is paused, which release() does not end: call resume()" in err
    assert everact("resume", "o-4") == (0, "'o-4' goes on\n", "")
    code, out, err = everact("redrive", "o-4", "1")
    assert code == 1 and "event 1 of workflow 'o-4' is no dead letter" in err
    commands = [
        ("list",), ("list", "--json"), ("list", "--status", "running"), ("list", "--limit", "2"), ("count", "--json"),
        ("describe", "o-1"), ("describe", "o-1", "--json"), ("history", "o-1"), ("history", "o-1", "--json"),
        ("result", "o-1"), ("result", "o-2"), ("result", "o-3"), ("describe", "none"), ("result", "none"),
        ("history", "o-1", "--run-id", "x"),
    ]  # fmt: skip
    running = [everact(*command) for command in commands]
    assert "o-4" in running[0][1]
    assert running[2][1].count("\n") < running[0][1].count("\n")
    assert "the newest 2 (--limit)" in running[3][1]
    assert ' SignalReceived {"name":"hear","args":["one"]' in running[7][1]
    program.leave()
    assert [everact(*command) for command in commands] == running
    code, out, err = everact("result", "o-4")
    assert (code, out) == (3, "")
    assert "workflow 'o-4' is running and has no result yet. Start the program whose Runtime opens it" in err


@pytest.mark.slow
def test_what_changes_a_run_needs_the_program(everact, program, tmp_journal):
    everact("start", "Waits", "--id", "w")
    program.kill()
    for command in (
        ("start", "Waits"), ("signal", "w", "hear", '"x"'), ("query", "w", "words"), ("update", "w", "add", "{}"),
        ("cancel", "w"), ("terminate", "w"),
    ):  # fmt: skip
        code, out, err = everact(*command)
        assert (code, out) == (3, "")
        assert err == (
            f"everact: error: no running program answers for the journal '{tmp_journal}': nobody listens at its socket "
            f"'everact.sock' (Connection refused). Start the program whose Runtime opens it; without it, `everact list "
            f"| count | describe | history | result --journal {tmp_journal}` read the journal itself.\n"
        )
    assert data(everact("count", "--json")) == {"count": 1}


@pytest.mark.slow
def test_what_the_program_refuses_is_said_in_one_line(everact, program):
    everact("start", "Waits", "--id", "w")
    for command, says in (
        (
            ("start", "Nope"),
            "workflow type 'Nope' is not registered with this runtime; known: Asks, Blocks, Free, Waits.",
        ),
        (("start", "Waits", "--id", "w"), "workflow 'w' already exists (run "),
        (("start", "Waits", '{"itm": 1}'), "argument 'order' of workflow Waits: "),
        (("start", "Waits", "1", "2"), "workflow Waits: "),
        (("start", "Waits", "--request-id", "r"), "request_id needs an id"),
        (("signal", "w", "heat", "1"), "workflow Waits has no signal 'heat'; it has: finish, hear, take"),
        (("signal", "none", "hear", '"a"'), "no workflow 'none' in this journal"),
        (
            ("signal", "w", "take", '{"item": "tea", "cuont": 2}'),
            "argument 'order' of signal Waits.take: Order has no such field (at $.cuont)",
        ),
        (
            ("update", "w", "add", '{"item": "tea", "cuont": 2}'),
            "argument 'order' of update Waits.add: Order has no such field (at $.cuont)",
        ),
        (
            ("query", "w", "holds", '{"item": "tea", "cuont": 2}'),
            "argument 'order' of query Waits.holds: Order has no such field (at $.cuont)",
        ),
        (("query", "w", "breaks"), "query 'breaks' raised KeyError"),
        (("update", "w", "add", '{"item": ""}'), "update 'add' failed: NoItem: no item"),
        (("signal", "", "hear"), "a workflow id must not be empty"),
    ):
        code, out, err = everact(*command)
        assert (code, out) == (1, ""), command
        assert err.startswith(f"everact: error: {says}"), command
        assert err.count("\n") == 1


@pytest.mark.slow
def test_a_taken_id_and_a_needless_release_are_told_in_the_words_of_the_command(everact, program):
    everact("start", "Waits", "--id", "w")
    _, _, err = everact("start", "Waits", "--id", "w")
    assert "running) and --if-running refuses it; nothing was started." in err
    assert err.endswith(" Other choices: --if-running attach | replace.\n")
    assert everact("release", "w")[:2] == (0, "'w' is running: there was nothing to release\n")
    everact("terminate", "w")
    _, _, err = everact("start", "Waits", "--id", "w", "--if-closed", "refuse")
    assert err.endswith(" Other choices: --if-closed allow | attach | allow_if_failed.\n")


def test_wrong_usage_is_said_before_anybody_is_asked(everact, tmp_path):
    deep = tmp_path / "deep.json"
    deep.write_bytes(b"[" * 100_000)
    for command, says in (
        (("signal", "w", "hear", "tea"), "'tea' is no JSON"),
        (("signal", "w", "hear", "tea"), "a text needs its quotes: '\"tea\"'"),
        (("start", "Waits", "{}", "--input-file", "x"), "in the command or in files, not in both"),
        (
            ("start", "Waits", "--input-file", "/nowhere/x"),
            "--input-file /nowhere/x: No such file or directory",
        ),
        (("start", "Waits", "--input-file", str(deep)), "is no JSON"),
        (("start", "Waits", "--retry-policy", "3 times"), "'3 times' is no JSON"),
        (
            ("start", "Waits", "--retry-policy", "3"),
            '--retry-policy: retry_policy must be an object with fields of RetryPolicy, such as {"maximum_attempts": 3',
        ),
        (
            ("start", "Waits", "--retry-policy", '{"attempts": 3}'),
            "--retry-policy: unknown field 'attempts' of retry_policy; known: backoff_coefficient, increment, ",
        ),
        (
            ("start", "Waits", "--retry-policy", '{"maximum_attempts": -1}'),
            "--retry-policy: RetryPolicy.maximum_attempts must be 0 or more, not -1",
        ),
        (
            ("start", "Waits", "--retry-policy", '{"initial_interval": "10s"}'),
            "--retry-policy: RetryPolicy.initial_interval must be a timedelta or a number of seconds, not '10s'",
        ),
        (
            ("start", "Waits", "--retry-policy", '{"retry_on": [7]}'),
            "--retry-policy: a retry policy names exception classes or their names, not 7",
        ),
        (
            ("start", "Waits", "--if-running", "use"),
            "--if-running must be one of 'fail', 'attach', 'replace', not 'use'",
        ),
        (("start", "Waits", "--if-closed", "use"), "--if-closed must be one of 'allow', 'allow_if_failed', "),
        (("list", "--status", "runing"), "--status must be one of 'running'"),
        (("count", "--status", "runing"), "not 'runing'"),
        (("replay", "-m", "x.py", "--status", "runing"), "--status must be one of 'running'"),
        (("list", "--limit", "0"), "'--limit'"),
        (("result", "w", "--timeout", "-1"), "'--timeout'"),
        (("signal", "w"), "Missing argument"),
    ):
        code, out, err = everact(*command)
        assert (code, out) == (2, ""), command
        assert says in err.replace("\n", " "), command


def test_a_journal_must_be_named_and_be_one(everact, tmp_path, monkeypatch):
    code, _out, err = everact("list", journal=None)
    assert code == 2
    assert "Missing option '--journal'" in err
    code, out, err = everact("list")
    assert (code, out) == (1, "")
    assert "there is no journal at " in err
    monkeypatch.setenv("EVERACT_JOURNAL", str(tmp_path / "other"))
    code, _out, err = everact("list", journal=None)
    assert code == 1
    assert f"there is no journal at '{tmp_path / 'other'}'" in err
    (tmp_path / "file").write_text("")
    assert everact("list", journal=tmp_path / "file")[0] == 1


@pytest.mark.slow
def test_arguments_come_from_files_and_from_standard_input(everact, program, tmp_path):
    import io

    (tmp_path / "order.json").write_text('{"item": "from a file",\n "count": 12345678901234567890}')
    files = ("--input-file", str(tmp_path / "order.json"), "--input-file", "-")
    everact("start", "Free", *files, "--id", "f", stdin=io.BytesIO(b'["\xc3\xa9"]'))
    code, out, _err = everact("result", "f")
    assert (code, json.loads(out)) == (0, [{"item": "from a file", "count": 12345678901234567890}, ["é"]])
    everact("start", "Free", '{"$datetime": "2026-11-30T00:00:00Z"}', "1.50", "--id", "g")
    assert json.loads(everact("result", "g")[1])[1] == 1.5


@pytest.mark.slow
def test_no_text_of_a_run_moves_the_cursor(everact, program):
    everact("start", "Waits", "--id", "w\x1b[2J\n")
    everact("signal", "w\x1b[2J\n", "hear", '"\\u001b[2J"')
    for command in (("list",), ("describe", "w\x1b[2J\n"), ("history", "w\x1b[2J\n")):
        code, out, _err = everact(*command)
        assert code == 0
        assert "\x1b" not in out
        assert "w\\x1b[2J\\n" in out or "\\u001b" in out


def test_the_commands_are_listed(everact):
    code, out, _err = everact("--help", journal=None)
    assert code == 0
    for command in (
        "list",
        "count",
        "describe",
        "history",
        "start",
        "signal",
        "query",
        "update",
        "result",
        "cancel",
    ):
        assert f"  {command} " in out


@pytest.mark.slow
def test_activities_are_completed_from_a_terminal(everact, program):
    def start(name):
        everact("start", "Asks", "--id", name)
        while not data(everact("describe", name, "--json"))["pending_activities"][0]["completed_outside"]:
            pass
        return "--workflow-id", name, "--command", "1"

    which = start("a")
    assert everact("activity", "heartbeat", *which, "--detail", '"half way"', "--detail", "50") == (
        0,
        "the activity is alive\n",
        "",
    )
    code, out, err = everact("activity", "complete", *which, "--result", '{"item": "tea", "cuont": 2}')
    assert (code, out) == (1, "")
    assert err == "everact: error: result of activity asks: Order has no such field (at $.cuont)\n"
    assert everact("activity", "complete", *which, "--result", '{"item": "tea"}') == (
        0,
        "the activity is completed\n",
        "",
    )
    assert data(everact("result", "a"))["item"] == "tea"
    which = start("b")
    failing = (
        "activity",
        "fail",
        *which,
        "--reason",
        "no stock",
        "--type",
        "NoStock",
        "--detail",
        '{"left": 0}',
    )
    assert data(everact(*failing, "--json")) == {}
    while "NoStock: no stock" not in everact("describe", "b")[1]:
        pass
    while data(everact("describe", "b", "--json"))["pending_activities"][0]["attempt"] != 2:
        pass
    while not data(everact("describe", "b", "--json"))["pending_activities"][0]["completed_outside"]:
        pass
    assert everact(*failing, "--non-retryable")[:2] == (0, "the attempt has failed\n")
    code, _out, err = everact("result", "b")
    assert code == 1
    assert "NoStock: no stock" in err
    which = start("c")
    everact("cancel", "c")
    code, out, err = everact("activity", "heartbeat", *which)
    assert (code, out) == (1, "")
    assert "has asked activity 'asks' to stop: end the work, then call report_cancelled()" in err
    assert everact("activity", "report-cancelled", *which) == (0, "the activity is cancelled\n", "")
    assert everact("result", "c")[0] == 1


@pytest.mark.slow
def test_an_update_is_only_started_and_its_answer_is_asked_for_later(everact, program):
    everact("start", "Waits", "--id", "w")
    code, out, _err = everact(
        "update", "w", "until", '"now"', "--wait-for-stage", "accepted", "--request-id", "r"
    )
    assert (code, out) == (0, "'until' was accepted by 'w' (request id r)\n")
    started = data(everact("update", "w", "until", '"now"', "--wait-for-stage", "accepted", "--json"))
    assert started["accepted"] is True
    everact("signal", "w", "hear", '"now"')
    for request_id in ("r", started["request_id"]):
        assert data(everact("update", "w", "until", '"now"', "--request-id", request_id)) == 0
    history = data(everact("history", "w", "--json"))
    assert (
        sum(event["event"] == "UpdateReceived" for record in history["records"] for event in record["inputs"])
        == 2
    )


@pytest.mark.slow
def test_a_list_is_printed_page_by_page_and_goes_on_behind_a_token(everact, program, monkeypatch):
    from everact.actors import listing

    for number in range(5):
        everact("start", "Free", "--id", f"run-{number}")
    monkeypatch.setattr(listing, "PAGE_SIZE", 2)

    def agree():
        whole = data(everact("list", "--json"))
        ids = [run["workflow_id"] for run in whole["workflows"]]
        assert (ids, whole["next_page_token"]) == ([f"run-{number}" for number in reversed(range(5))], None)
        first = data(everact("list", "--json", "--limit", "3"))
        rest = data(everact("list", "--json", "--next-page-token", first["next_page_token"]))
        assert [*first["workflows"], *rest["workflows"]] == whole["workflows"]
        code, out, err = everact("list")
        assert (code, err, out.count("workflow id")) == (0, "", 1)
        lines = [line for line in out.splitlines() if "run-" in line]
        assert [line.split()[0] for line in lines] == ids
        assert len({line.index("Free") for line in lines}) == 1
        assert everact("list", "--limit", "3")[1].endswith("the newest 3 (--limit)\n")
        assert data(everact("list", "--json", "--status", "held")) == {
            "workflows": [],
            "next_page_token": None,
        }
        assert everact("list", "--status", "held")[1] == "no runs\n"

    agree()
    program.leave()
    agree()


@pytest.mark.slow
def test_a_list_goes_on_from_the_journal_when_the_program_ends_in_the_middle(everact, program, monkeypatch):
    from everact.actors import listing
    from everact.workflow_texts import ListPrinter

    for number in range(5):
        everact("start", "Free", "--id", f"run-{number}")
    printed = []

    def page(self, page, real=ListPrinter.page):
        printed.append(len(page.workflows))
        real(self, page)
        program.kill()

    monkeypatch.setattr(listing, "PAGE_SIZE", 2)
    monkeypatch.setattr(ListPrinter, "page", page)
    code, out, _err = everact("list", "--json")
    assert (code, printed) == (0, [2, 2, 1])
    assert [run["workflow_id"] for run in json.loads(out)["workflows"]] == [
        f"run-{number}" for number in reversed(range(5))
    ]
