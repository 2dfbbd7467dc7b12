"""``everact lint``: the static check as a command."""

import io
import json
import re
import sys
import textwrap
import time
from pathlib import Path

import pytest

from everact.actors.source_check import check_source
from everact.lint.report import rules

ROOT = Path(__file__).resolve().parents[2]
BAD = textwrap.dedent(
    """\
    import time, uuid
    from everact import workflow

    @workflow.defn
    class Bad:
        @workflow.run
        async def run(self) -> float:
            print("x")
            return time.time()
    """
)
ADVICE = "use workflow.now() or workflow.time()"
GOOD = BAD.replace("time.time()", "workflow.time()").replace('print("x")', "pass")


@pytest.fixture
def lint(everact):
    return lambda *arguments, stdin=None: everact(
        "lint", *map(str, arguments), stdin=stdin and io.BytesIO(stdin.encode()), journal=None
    )


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    return path


def test_a_finding_has_its_place_and_what_to_write_instead(lint, bad):
    code, out, err = lint(bad)
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"{bad}:9:16: EV101 time.time() in workflow code: the clock shows another time on replay; {ADVICE}",
        "1 error in 1 workflow class in 1 file; '# everact: allow' on a line lets it through",
    ]


def test_clean_code_is_clean(lint, tmp_path):
    path = tmp_path / "good.py"
    path.write_text(GOOD)
    assert lint(path) == (0, "nothing found in 1 workflow class in 1 file\n", "")


def test_rules_are_selected_and_ignored_by_the_beginnings_of_their_codes(lint, bad):
    assert "EV301 print()" in lint(bad, "--select", "EV")[1]
    assert lint(bad, "--select", "EV3")[0] == 1
    assert "EV101" not in lint(bad, "--select", "EV3,EV105")[1]
    assert lint(bad, "--ignore", "EV101,EV2")[0] == 0
    code, _, err = lint(bad, "--select", "XX")
    assert code == 2
    assert "there is no rule 'XX'; `everact lint --rules` lists them" in err


@pytest.mark.parametrize(
    ("comment", "code"),
    [
        ("# everact: allow", 0),
        ("# everact: allow, for a test", 0),
        ("# everact: allow[EV101]", 0),
        ("# everact: allow[EV105, EV101] it is only shown", 0),
        ("# everact: allow[EV105]", 1),
        ("# noqa", 1),
    ],
)
def test_a_comment_lets_a_line_through_all_of_it_or_some_rules(lint, tmp_path, comment, code):
    path = tmp_path / "flow.py"
    path.write_text(BAD.replace("time.time()", f"time.time()  {comment}"))
    assert lint(path)[0] == code


def test_json_has_the_same(lint, bad, tmp_path):
    code, out, _ = lint(bad, "--format", "json")
    assert code == 1
    assert json.loads(out) == {
        "findings": [
            {
                "path": str(bad), "line": 9, "column": 16, "code": "EV101", "severity": "error", "call": "time.time()",
                "message": "the clock shows another time on replay", "instead": "use workflow.now() or workflow.time()",
            }
        ],
        "unreadable": [], "files": 1, "workflows": 1,
    }  # fmt: skip
    target = tmp_path / "out.json"
    assert lint(bad, "--format", "json", "-o", target)[:2] == (1, "")
    assert json.loads(target.read_text()) == json.loads(out)


def test_github_annotations_are_escaped(lint, tmp_path):
    path = tmp_path / "a,b%c.py"
    path.write_text(BAD)
    code, out, _ = lint(path, "--format", "github")
    assert code == 1
    place = str(path).replace("%", "%25").replace(",", "%2C")
    assert out.startswith(
        f"::error file={place},line=9,col=16,title=Everact EV101::time.time() in workflow code: "
    )


def test_sarif_is_as_code_scanning_takes_it(lint, bad):
    code, out, _ = lint(bad, "--format", "sarif")
    assert code == 1
    document = json.loads(out)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    listed = run["tool"]["driver"]["rules"]
    (result,) = run["results"]
    assert listed[result["ruleIndex"]]["id"] == result["ruleId"] == "EV101"
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 9, "startColumn": 16}
    assert place["artifactLocation"]["uri"] == bad.as_uri()
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_rules_are_listed_with_their_replacement(lint):
    code, out, _ = lint("--rules")
    assert code == 0
    for each in rules().values():
        for rule, _ in each:
            assert rule.code in out
            assert f"      instead: {rule.advice}\n" in out
    listed = json.loads(lint("--rules", "--format", "json")[1])
    assert {"EV101", "EV110", "EV202", "EV302"} <= {rule["code"] for rule in listed}
    assert set(rules()) == {rule["code"] for rule in listed}
    assert "time.time" in next(rule for rule in listed if rule["code"] == "EV101")["names"]


def test_folders_are_walked_without_what_is_not_the_projects_own(lint, tmp_path):
    for name in (
        "flows/a.py",
        ".venv/b.py",
        "node_modules/c.py",
        "flows/__pycache__/d.py",
        "flows/made_pb2.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BAD)
    (tmp_path / "flows" / "notes.txt").write_text(BAD)
    out = lint(tmp_path, "--exclude", "*_pb2.py")[1]
    assert out.endswith(
        "1 error in 1 workflow class in 1 file; '# everact: allow' on a line lets it through\n"
    )
    assert lint(tmp_path / ".venv" / "b.py")[0] == 1  # named, it is checked


def test_a_package_is_found_by_name_and_not_imported(lint, tmp_path, monkeypatch):
    package = tmp_path / "shop_of_lint" / "flows"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "bad.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    code, out, _ = lint("shop_of_lint.flows")
    assert (code, "bad.py:9:16: EV101" in out) == (1, True)
    assert not [name for name in sys.modules if name.startswith("shop_of_lint")]
    code, _, err = lint("shop_of_lint.nope")
    assert code == 2
    assert err == (
        "everact: error: 'shop_of_lint.nope' is no file, no folder, and no package that this Python can find\n"
    )


def test_base_classes_of_other_files_are_checked_as_a_runtime_does(lint, tmp_path):
    package = tmp_path / "shop"
    (package / "deep").mkdir(parents=True)
    for folder in (package, package / "deep"):
        (folder / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from .base import Clocked\n")
    (package / "base.py").write_text(
        "import time\n\nclass Clocked:\n    def now(self):\n        return time.time()\n"
    )
    flow = GOOD.replace("class Bad:", "class Flow(Clocked):")
    for number, line in enumerate(
        [
            "from shop.base import Clocked",
            "from ..base import Clocked",
            "from .. import Clocked",
            "from shop import Clocked",
        ]
    ):
        path = package / "deep" / f"flow{number}.py"
        path.write_text(f"{line}\n{flow}")
        out = lint(tmp_path)[1]
        assert "base.py:5:16: EV101 time.time()" in out
        path.unlink()
    assert lint(tmp_path)[0] == 0  # a class of nobody's workflow


def test_standard_input_is_a_file_of_the_name_given(lint):
    code, out, _ = lint("-", "--stdin-filename", "flow.py", stdin=BAD)
    assert code == 1
    assert out.startswith("flow.py:9:16: EV101 ")


def test_what_cannot_be_read_is_named_and_the_rest_is_checked(lint, tmp_path, bad):
    (tmp_path / "broken.py").write_text("from everact import workflow\ndef (:\n")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n" + BAD.encode())
    (tmp_path / "bytes.py").write_bytes(b"# everact \xff\n")
    code, out, err = lint(tmp_path)
    assert code == 2
    assert "bad.py:9:16: EV101" in out
    assert "latin.py:11:16: EV101" in out
    assert re.search(r"everact: error: .*broken\.py: line 2: it is no Python: ", err)
    assert re.search(r"everact: error: .*bytes\.py: ", err)


def test_a_file_that_is_named_is_parsed_whatever_it_holds(lint, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\ndef (:\n")
    code, out, err = lint(broken)
    assert (code, out) == (2, "1 file could not be checked\n")
    assert err == f"everact: error: {broken}: line 2: it is no Python: invalid syntax\n"
    assert lint(tmp_path)[0] == 0  # nothing of Everact's is in it


def test_nothing_found_is_said_only_of_what_was_checked(lint, tmp_path, bad):
    bad.write_text(GOOD)
    (tmp_path / "broken.py").write_text("from everact import workflow\ndef (:\n")
    told = "1 file could not be checked; nothing found in the rest: 1 workflow class in 1 file\n"
    assert lint(tmp_path)[:2] == (2, told)
    bad.write_text(BAD)
    assert lint(tmp_path)[1].endswith("lets it through; 1 file could not be checked\n")


def test_wrong_usage(lint, bad):
    assert lint()[0] == 2
    assert "--format is one of text, json, github, sarif, not 'xml'" in lint(bad, "--format", "xml")[2]


@pytest.mark.slow
def test_no_false_alarm_in_the_examples_and_in_what_is_installed(lint):
    assert lint(ROOT / "examples", ROOT / "everact")[0] == 0
    code, out, _ = lint(ROOT / "tests" / "support")
    assert code == 1
    places = {re.match(r".*/(\w+\.py):\d+:\d+: (EV\d+)", line).groups() for line in out.splitlines()[:-1]}
    assert places == {  # they block, and differ between processes, on purpose
        ("door_workflows.py", "EV105"),
        ("door_workflows.py", "EV102"),
        ("seed_workflows.py", "EV104"),
        ("seed_workflows.py", "EV105"),
    }


@pytest.mark.slow
def test_a_thousand_files_are_checked_in_seconds(lint, tmp_path):
    for number in range(1000):
        text = f"VALUE = {number}\n" * 200 if number % 10 else "VALUE = 1\n" * 200 + BAD
        (tmp_path / f"m{number}.py").write_text(text)
    start = time.perf_counter()
    out = lint(tmp_path)[1]
    took = time.perf_counter() - start
    assert "100 errors in 100 workflow classes in 1,000 files" in out
    assert took < 5, took  # 0.3 s on the machine that this was written on


def test_the_hook_of_pre_commit_names_this_command():
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "- id: everact-lint\n" in text
    assert "  entry: everact lint\n" in text
    assert "  types_or: [python, pyi]\n" in text
    assert "  language: python\n" in text


def test_codes_in_the_comment_count_for_the_static_check_of_a_runtime_too():
    allowed = BAD.replace("time.time()", "time.time()  # everact: allow[EV101]")
    assert [finding.code for finding in check_source(allowed, "flow.py")] == ["EV301"]
