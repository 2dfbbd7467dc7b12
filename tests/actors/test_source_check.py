"""The static check: what replays differently is found in the source, with its place and its replacement."""

import importlib.util
import itertools
import logging
import re
import sys
import textwrap
import warnings
from datetime import datetime
from pathlib import Path

import pytest
from support.hosting import hosted

from everact import Runtime, workflow
from everact.actors import determinism_rules
from everact.actors.determinism_rules import (
    CALLS,
    CALLS_WITHOUT_ARGUMENTS,
    EVENTS,
    METHODS,
    PATH_METHODS,
    VALUES,
    Rule,
)
from everact.actors.source_check import Finding, check_class, check_source, check_workflows, findings_of
from everact.exceptions import DeterminismWarning, RegistrationError
from everact.journal.memory_store import MemoryJournal

HEAD = """\
import asyncio, datetime, os, pathlib, random, secrets, socket, subprocess, tempfile, threading, time, uuid
import concurrent.futures, multiprocessing, requests
import time as clock
from datetime import datetime as dt, date
from random import randint as dice, Random
from everact import activity, workflow
"""


def found(body, head=HEAD, extra=""):
    """Findings of a workflow whose run method has this body, with lines counted from the body's first."""
    start = f"{head}{textwrap.dedent(extra)}\n@workflow.defn\nclass W:\n"
    start += "    @workflow.run\n    async def run(self, n: int = 0):\n"
    source = start + textwrap.indent(textwrap.dedent(body), " " * 8)
    first = start.count("\n")
    return [(f.line - first, f.code, f.call) for f in check_source(source, "flow.py")]


def codes(body, **options):
    return [code for _, code, _ in found(body, **options)]


CALLED = {
    "time.time()": "EV101",
    "clock.monotonic()": "EV101",
    "time.perf_counter()": "EV101",
    "time.localtime()": "EV101",
    "datetime.datetime.now()": "EV101",
    "dt.utcnow()": "EV101",
    "dt.now(datetime.UTC).date()": "EV101",
    "date.today()": "EV101",
    "datetime.datetime.today()": "EV101",
    "time.sleep(1)": "EV102",
    "random.random()": "EV103",
    "dice(1, 6)": "EV103",
    "random.Random().random()": "EV103",
    "Random()": "EV103",
    "random.SystemRandom()": "EV103",
    "os.urandom(8)": "EV103",
    "secrets.token_hex()": "EV103",
    "uuid.uuid1()": "EV103",
    "uuid.uuid4().hex": "EV103",
    "os.getenv('HOME')": "EV104",
    "os.environ['HOME']": "EV104",
    "os.environ.get('HOME')": "EV104",
    "dict(os.environ)": "EV104",
    "socket.gethostname()": "EV104",
    "open('x').read()": "EV105",
    "pathlib.Path('x').read_text()": "EV105",
    "os.listdir('.')": "EV105",
    "os.path.exists('x')": "EV105",
    "tempfile.mkdtemp()": "EV105",
    "socket.socket()": "EV106",
    "requests.get('http://localhost')": "EV106",
    "asyncio.open_connection('localhost', 1)": "EV106",
    "subprocess.run(['true'])": "EV107",
    "os.system('true')": "EV107",
    "multiprocessing.Process(target=print)": "EV107",
    "threading.Thread(target=print).start()": "EV108",
    "concurrent.futures.ThreadPoolExecutor()": "EV108",
    "asyncio.to_thread(print)": "EV108",
    "asyncio.get_running_loop().run_in_executor(None, print)": "EV108",
    "asyncio.run(main())": "EV109",
    "asyncio.new_event_loop()": "EV109",
    "input('?')": "EV110",
    "print('x')": "EV301",
    "hash('x')": "EV302",
}


@pytest.mark.parametrize("call", CALLED)
def test_a_call_is_found_with_its_line_and_rule(call):
    assert [(line, code) for line, code, _ in found(f"await asyncio.sleep(1)\nreturn {call}\n")] == [
        (2, CALLED[call])
    ]


FINE = [
    "asyncio.get_running_loop().time()",
    "time.localtime(n)",
    "time.strftime('%Y', time.gmtime(0))",
    "random.Random(7).random()",
    "isinstance(n, random.Random)",
    "datetime.datetime(2026, 1, 1)",
    "uuid.UUID(int=n)",
    "uuid.uuid5(uuid.NAMESPACE_DNS, 'x')",
    "os.path.join('a', 'b')",
    "pathlib.PurePath('a') / 'b'",
    "threading.Lock()",
    "workflow.now()",
    "workflow.random().random()",
    "self.time.time()",
    "{1, 2} | {3}",
    "sorted({'a', 'b'})",
    "'x' in {'a', 'b'}",
    "[x for x in {1, 2, 3} if f(x)]",
    "[f(x) for x in set(range(3))]",
]


@pytest.mark.parametrize("expression", FINE)
def test_what_replays_alike_is_not_found(expression):
    assert found(f"return {expression}") == []


def test_names_mean_what_the_code_says_they_mean():
    assert codes("time = self.clock\nreturn time.time()") == []
    assert codes("for open in self.doors:\n    open()") == []
    assert codes("def print(x): pass\nprint(1)") == []
    assert codes("return (lambda time: time.time())(self)") == []
    assert codes("from time import monotonic\nreturn monotonic()") == ["EV101"]
    assert codes("now = time.time\nreturn now()") == ["EV101"]
    assert codes("return now()", extra="now = dt.now") == ["EV101"]
    assert codes("return now()", extra="now = dt.now\nnow = None") == []
    assert codes("return open(n)", extra="def open(n): return n") == []
    assert codes("return p.read_text()") == ["EV105"]
    assert codes("return p.read_text()", head="from everact import workflow\n") == []


def test_functions_of_the_file_are_followed_wherever_they_are_called_from():
    extra = """
        def deep():
            return time.time()

        def helper(f=None):
            return deep()

        class Cart:
            def __init__(self):
                self.id = uuid.uuid4()

            @staticmethod
            def total(count):
                return random.random()

            def other(self):
                return time.time()

        class Base:
            def inherited(self):
                return os.getenv("x")

            @property
            def stamp(self):
                return time.time()
    """
    assert codes("return helper()", extra=extra) == ["EV101"]
    assert codes("return await asyncio.gather(*map(helper, [1]))", extra=extra) == ["EV101"]
    assert codes("await workflow.wait_condition(helper)", extra=extra) == ["EV101"]
    assert codes("return Cart()", extra=extra) == ["EV103"]
    assert codes("return Cart.total(1)", extra=extra) == ["EV103"]
    assert codes("return None", extra=extra) == []
    assert codes("async def inner():\n    return time.time()\nawait inner()", extra=extra) == ["EV101"]
    source = (
        HEAD
        + textwrap.dedent(extra)
        + textwrap.dedent("""
        @workflow.defn
        class W(Base):
            def __init__(self):
                self.made = self.own(), super().inherited()

            def own(self):
                def nested():
                    return [self.stamp, self.other(self)]
                return nested()

            def other(self, self2):
                return helper(helper)

            @workflow.run
            async def run(self): pass

            @workflow.query
            def look(self):
                return dice(1, 2)
    """)
    )
    assert sorted(f.code for f in check_source(source, "x")) == ["EV101", "EV101", "EV103", "EV104"]


def test_activities_are_not_workflow_code():
    extra = """
        @activity.defn
        def read(): return open("x").read()

        @activity.defn(name="w")
        async def write(): open("x")

        async def undecorated(): open("x")
    """
    assert codes("await write()\nawait workflow.execute_activity(read)", extra=extra) == []
    assert codes("await undecorated()", extra=extra) == ["EV105"]
    source = HEAD + textwrap.dedent("""
        @workflow.defn
        class W:
            @activity.defn
            async def load(self): return open("x")

            @workflow.run
            async def run(self): await workflow.execute_activity_method(W.load)

        class Plain:
            def run(self): time.time()
    """)
    assert check_source(source, "x") == []


@pytest.mark.parametrize(
    ("names", "decorator"),
    [
        ("import time\nfrom everact import *\n", "activity.defn"),
        ("import time\nfrom everact import activity, workflow\ntask = activity.defn(name='w')\n", "task"),
    ],
)
def test_an_activity_is_one_by_whatever_name_its_decorator_goes(names, decorator):
    extra = f"@{decorator}\ndef read(): time.sleep(1)"
    assert codes("await workflow.execute_activity(read)", head=names, extra=extra) == []
    assert codes("read()", head=names, extra="def read(): time.sleep(1)") == ["EV102"]


def test_the_comment_lets_a_line_through():
    assert codes("return time.time()  # everact: allow") == []
    assert codes("return time.time()  # everact: allow, only shown") == []
    assert codes("return time.time()  # everact:allow") == []
    assert codes("return time.time()  # allow") == ["EV101"]
    assert codes("# everact: allow\nreturn time.time()") == ["EV101"]
    assert codes("return subprocess.run(\n    ['true'],\n    check=True,\n)  # everact: allow") == []
    path = "return pathlib.Path(  # {}\n    'x'\n).read_text()  # {}"
    assert codes(path.format("everact: allow", "")) == ["EV105"]
    assert codes(path.format("", "everact: allow")) == []


def test_the_order_of_a_set_is_found_where_it_decides_something():
    assert found("for x in {'a', 'b'}:\n    await f(x)") == [(1, "EV201", "awaiting in a loop over a set")]
    assert codes("names = {'a', 'b'}\nfor x in names:\n    await f(x)") == ["EV201"]
    assert codes("names = {'a', 'b'}\nnames = sorted(names)\nfor x in names:\n    await f(x)") == []
    assert codes("for x in {'a', 'b'}:\n    self.total += 1") == []
    assert codes("await asyncio.gather(*(f(x) for x in set(self.names) - {'a'}))") == ["EV201"]
    assert codes("return list({'a', 'b'})") == ["EV201"]
    assert codes("done, pending = await asyncio.wait(n)\nfor task in done:\n    await task") == []
    tasks = "tasks = {asyncio.create_task(f(x)) for x in n}\nfor task in tasks:\n    await task"
    assert codes(tasks) == ["EV201"]


def test_state_that_all_runs_share_is_found_where_it_is_changed():
    """B08"""
    extra = (
        "import collections\nCACHE = {}\nSEEN: list = []\nCOUNTS = collections.Counter()\n"
        "COUNT = 0\nLIMITS = (1, 2)\n"
    )
    assert found("CACHE[n] = await f(n)", extra=extra) == [(1, "EV202", "changing CACHE")]
    assert codes("SEEN.append(n)", extra=extra) == ["EV202"]
    assert codes("COUNTS.update([n])", extra=extra) == ["EV202"]
    assert codes("del CACHE[n]", extra=extra) == ["EV202"]
    assert found("global COUNT\nCOUNT += 1", extra=extra) == [(2, "EV202", "setting the global COUNT")]
    assert codes("return CACHE[n], LIMITS[0], COUNT", extra=extra) == []
    assert codes("SEEN = []\nSEEN.append(n)", extra=extra) == []


def test_a_forgotten_await_is_found():
    extra = """
    async def helper(n): ...
    async def items(n): yield n
    def plain(n): ...
    def ready(fn): return fn
    @ready
    async def decorated(n): ...
    """
    assert found("workflow.sleep(n)") == [(1, "EV203", "workflow.sleep() without await")]
    assert found("asyncio.sleep(n)") == [(1, "EV203", "asyncio.sleep() without await")]
    assert found("workflow.execute_activity(f, n)")[0][1:] == (
        "EV203",
        "workflow.execute_activity() without await",
    )
    assert found("if n:\n    helper(n)", extra=extra) == [(2, "EV203", "helper() without await")]
    assert found("self.run(n)") == [(1, "EV203", "run() without await")]
    assert codes("workflow.sleep(n)  # everact: allow") == []
    for fine in (
        "await helper(n)",
        "task = asyncio.create_task(helper(n))\nawait task",
        "asyncio.gather(helper(n))",
        "handle = workflow.start_activity(f, n)",
        "later = helper(n)\nawait later",
        "plain(n)\nitems(n)\ndecorated(n)",
        "workflow.complete(n)",
    ):
        assert codes(fine, extra=extra) == [], fine


def test_a_finding_has_all_that_a_tool_needs():
    (finding,) = check_source(
        "from everact import workflow\nimport time\n@workflow.defn\nclass W:\n  def run(self): return 1, time.time()\n",
        "flow.py",
    )
    assert finding == Finding(
        "flow.py",
        5,
        28,
        "EV101",
        "error",
        "time.time()",
        "the clock shows another time on replay",
        "use workflow.now() or workflow.time()",
    )
    assert str(finding) == (
        "flow.py:5:28: EV101 time.time() in workflow code: the clock shows another time on replay; "
        "use workflow.now() or workflow.time()"
    )


def test_places_are_those_of_a_trace_and_columns_are_characters():
    source = (
        "from everact import workflow\nimport pathlib, time\n@workflow.defn\nclass W:\n  def run(self):  # \f\n"
        "    'ä', '\U0001f600', time.time()\n    pathlib.Path(\n     'ä'\n    ).read_text(\n    )\n    (\n  open)()\n"
    )
    assert [(f.line, f.column) for f in check_source(source, "x")] == [(6, 15), (9, 7), (12, 3)]


def test_every_rule_says_what_to_do():
    rules = itertools.chain(
        *(table.values() for table in (CALLS, CALLS_WITHOUT_ARGUMENTS, METHODS, PATH_METHODS, VALUES)),
        (rule for _, rule in EVENTS.values()),
    )
    for rule in rules:
        assert rule.why and rule.advice
        assert rule.severity == {"1": "error", "2": "warning", "3": "hint"}[rule.code[2]]


def test_the_page_lists_every_code():
    page = Path(__file__).parents[2] / "docs" / "determinism.md"
    listed = set(re.findall(r"^\| (EV\d\d\d) \|", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {rule.code for rule in vars(determinism_rules).values() if isinstance(rule, Rule)}


def test_what_a_workflow_class_is():
    body = "\nclass W:\n    def run(self): return open('x')\n"
    for head in (
        "from everact import workflow\n@workflow.defn",
        "from everact import workflow as w\n@w.defn(name='x')",
        "from everact.workflow import defn\n@defn",
        "import everact\n@everact.workflow.defn",
        "def make():\n    from everact import workflow",
    ):
        if head.startswith("def"):
            source = head + textwrap.indent("\n@workflow.defn" + body, "    ")
        else:
            source = head + body
        assert len(check_source(source, "x")) == 1, head
    assert check_source("import other\n@other.defn" + body, "x") == []
    with pytest.raises(SyntaxError):
        check_source("class", "x")


# --- at the runtime


def wrong(stamp=None):
    @workflow.defn
    class Wrong:
        @workflow.run
        async def run(self) -> str:
            print("started")
            return str(datetime.now())  # the line

    return Wrong


def warned(*workflows, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Runtime("nowhere", workflows=workflows, **options)
    return [w for w in caught if w.category is DeterminismWarning]


def test_a_runtime_warns_at_the_place():
    W = wrong()
    (warning,) = warned(W)
    assert str(warning.message) == (
        "datetime.datetime.now() in workflow code: the clock shows another time on replay; use workflow.now() or "
        "workflow.time() (or put '# everact: allow' on the line)"
    )
    assert (warning.filename, warning.lineno) == (__file__, W.run.__code__.co_firstlineno + 3)
    assert warned(W, guard="off") == []


def test_a_place_is_warned_of_once():
    W, Again = wrong(), wrong()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            Runtime("nowhere", workflows=[W])
        Runtime("nowhere", workflows=[Again])  # another class of the same lines
    assert len(caught) == 1


def test_a_strict_runtime_refuses():
    W = wrong()
    with pytest.raises(RegistrationError) as caught:
        Runtime("nowhere", workflows=[W], guard="strict")  # before it wraps anything
    place = f"{__file__}:{W.run.__code__.co_firstlineno + 3}:24"
    assert str(caught.value) == (
        "guard='strict' refuses workflow code that replays differently; correct it, or put '# everact: allow' on the "
        f"line:\n  {place}: EV101 datetime.datetime.now() in workflow code: the clock shows another time on replay; "
        "use workflow.now() or workflow.time()"
    )


@pytest.mark.parametrize("word", ["", "loose", None, True])
def test_an_unknown_guard(word):
    with pytest.raises(ValueError, match=f"guard must be 'warn', 'strict' or 'off', not {word!r}"):
        Runtime("nowhere", guard=word)


class Inherited:
    def stamp(self) -> str:
        return str(datetime.now())


def test_bases_are_checked_and_a_class_is_read_once():
    @workflow.defn
    class Derived(Inherited):
        @workflow.run
        async def run(self) -> None:
            pass

    (finding,) = findings_of(Derived)
    assert finding.line == Inherited.stamp.__code__.co_firstlineno + 1
    assert findings_of(Derived) is findings_of(Derived)
    assert check_class(Derived) == []


def test_two_classes_of_one_name_are_told_apart():
    def one():
        @workflow.defn
        class W:
            @workflow.run
            async def run(self) -> None:
                pass

        return W

    def two():
        @workflow.defn
        class W:
            @workflow.run
            async def run(self) -> None:
                datetime.now()

        return W

    assert findings_of(one()) == []
    assert len(findings_of(two())) == 1


def test_a_class_without_source_is_said_once_and_works(caplog):
    caplog.set_level(logging.INFO, "everact.runtime")
    source = (
        "@workflow.defn\nclass {0}:\n    @workflow.run\n    async def run(self) -> float:\n"
        "        return time.time()\n"
    )
    space = {"workflow": workflow, "time": __import__("time"), "__name__": "typed_in"}
    for name in ("A", "B"):
        exec(source.format(name), space)
    assert warned(space["A"], space["B"]) == []
    assert [record.getMessage() for record in caplog.records] == [
        "workflow 'A' is not checked for what replays differently: there is no source of <string>"
    ]
    check_workflows([space["A"]], "strict")


def test_a_file_that_is_no_python_or_has_changed_is_no_failure(tmp_path):
    for number, text in enumerate(("# A page\n\nwith text.\n", "\n" * 9)):
        path = tmp_path / f"page{number}.md"
        path.write_text(text)
        space = {"workflow": workflow, "__name__": f"page{number}"}
        body = "@workflow.defn\nclass A:\n    @workflow.run\n    async def run(self): open('x')\n"
        exec(compile(body, str(path), "exec"), space)
        assert warned(space["A"]) == []


def test_code_that_is_too_deep_to_walk_is_no_failure(tmp_path, caplog):
    caplog.set_level(logging.INFO, "everact.runtime")
    path = tmp_path / "deep.py"
    # Deeper than the walk of an expression, which takes two Python frames for each level.
    deep = "not " * (sys.getrecursionlimit() - 300) + "1"
    path.write_text(f"@workflow.defn\nclass A:\n    @workflow.run\n    async def run(self): {deep}\n")
    space = {"workflow": workflow, "__name__": "too_deep"}
    try:
        code = compile(path.read_text(), str(path), "exec")
    except (RecursionError, MemoryError, SyntaxError):
        pytest.skip("this Python does not compile it either")
    exec(code, space)
    assert warned(space["A"]) == []
    (record,) = caplog.records
    assert "deep.py cannot be read: RecursionError" in record.getMessage()


def test_the_file_of_a_workflow_is_neither_run_nor_imported_again(tmp_path):
    """I01: imports that a workflow does not use are no business of its check."""
    path = tmp_path / "once.py"
    path.write_text(
        "import builtins, yaml_that_is_nowhere\nfrom everact import workflow\nbuiltins.everact_count += 1\n"
        "@workflow.defn\nclass A:\n    @workflow.run\n    async def run(self): yaml_that_is_nowhere.load()\n"
    )
    sys.modules["yaml_that_is_nowhere"] = type(sys)("yaml_that_is_nowhere")
    __builtins__["everact_count"] = 0
    try:
        spec = importlib.util.spec_from_file_location("once", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert warned(module.A) == []
        assert __builtins__["everact_count"] == 1
    finally:
        del sys.modules["yaml_that_is_nowhere"], __builtins__["everact_count"]


async def test_the_workflow_still_runs():
    W = wrong()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        async with hosted(MemoryJournal(), W) as runtime:
            assert await runtime.execute(W)


def test_what_is_recorded_once_may_look_at_anything():
    assert codes("return workflow.side_effect(lambda: time.time())") == []
    assert codes("return workflow.side_effect(time.time)") == []
    assert codes("def draw(): return time.time()\nreturn workflow.side_effect(draw)") == []
    assert codes("return workflow.side_effect(stamp)", extra="def stamp(): return time.time()") == []
    assert codes("def draw(): return time.time()\nreturn draw()") == ["EV101"]
