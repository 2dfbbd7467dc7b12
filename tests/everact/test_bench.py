"""The benchmark runs, compares each figure with its bare limit, and its counts are real."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from everact.bench import bed, driver, machine, recorded
from everact.bench.bare import BareLog, in_lanes
from everact.bench.report import Limit, Line, median_lines, quantile, show, table
from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import CLOSES_RUN

KEYS = ["W1.latency", "W1.commits", "W2.speed", "W2.commits", "W3.speed", "W3.alone"]


def bench(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everact", "bench", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=50)


def closed_runs_and_commits(journal: Path) -> tuple[int, int]:
    store = LmdbStore(journal, read_only=True)
    try:
        records = [entries for _sequence, entries in store.scan()]
    finally:
        store.close()
    return sum(bool(entry.flags & CLOSES_RUN) for entries in records for entry in entries), len(records)


@pytest.mark.smoke
@pytest.mark.slow
def test_every_figure_stands_beside_its_limit_and_its_runs_are_in_the_journal(tmp_path: Path) -> None:
    args = ("--scale", "0.01", "--only", "W1,W2,W3", "--json", "found.json", "--journal", "disk", "--keep")
    done = bench(tmp_path, *args)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads((tmp_path / "found.json").read_text())
    lines = {line["key"]: line for line in found["lines"]}
    assert list(lines) == KEYS

    for key in ("W1.latency", "W2.speed", "W3.speed", "W3.alone"):
        line = lines[key]
        assert line["value"] > 0
        assert line["limits"]
        for limit in line["limits"]:
            assert limit["ratio"] > 0
            ratio = line["value"] / limit["value"]
            assert limit["ratio"] == pytest.approx(ratio if line["unit"] == "ms" else 1 / ratio)
            assert f"ratio {limit['ratio']:.2f}" in done.stdout
    for line in lines.values():
        assert line["target"]
        assert isinstance(line["reached"], bool)
        assert line["what"] in done.stdout

    # A step is a commit, a workflow of one step alone is two, and 200 share theirs.
    assert lines["W1.commits"]["value"] == 2
    assert lines["W3.alone"]["detail"]["commits_per_step"] == 1
    assert lines["W2.commits"]["value"] < 0.5

    (place,) = (tmp_path / "disk").iterdir()
    counts = {"W1.latency": 20 + 20, "W2.speed": 200 + 200, "W3.speed": 100 + 3 * 100, "W3.alone": 1}
    for key, count in counts.items():
        detail = lines[key]["detail"]
        closed, commits = closed_runs_and_commits(place / detail["journal"])
        assert detail["completed_in_journal"] == closed == count
        if (own := lines.get(f"{key[:2]}.commits")) is not None and key != "W3.alone":
            assert 0 < own["detail"]["commits"] < commits

    about = found["machine"]
    assert about["durability"]["sync"] is True
    assert about["durability"]["metasync"] is True
    assert 0 < about["bare_commit"]["p50_ms"] <= about["bare_commit"]["p99_ms"]
    assert about["journal_file_system"] in done.stdout
    assert about["bare_commit_after"]["p50_ms"] > 0
    assert about["steady"] is ("WARNING: the disk" not in done.stdout)


@pytest.mark.smoke
@pytest.mark.slow
@pytest.mark.parametrize(("flag", "loop"), [("--uvloop", "uvloop"), ("--no-uvloop", "asyncio")])
def test_both_loops_run_and_nothing_is_left_behind(tmp_path: Path, flag: str, loop: str) -> None:
    args = ("--scale", "0.01", "--only", "w1", "--repeat", "3", "--json", "found.json", "--journal", ".")
    done = bench(tmp_path, *args, flag)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["event_loop"].startswith(loop)
    assert [line["key"] for line in found["lines"]] == KEYS[:2]
    latency = found["lines"][0]
    assert sorted(latency["detail"]["all_runs"])[1] == latency["value"]
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.slow
def test_a_profile_is_written_and_the_figures_are_called_invalid(tmp_path: Path) -> None:
    done = bench(tmp_path, "--scale", "0.01", "--only", "W2", "--profile", "p.prof", "--journal", "disk")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.prof").stat().st_size > 0
    assert "no figure above is valid" in done.stdout
    assert "workflow_instance.py" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("args", [("--scale", "0"), ("--scale", "nan"), ("--repeat", "0"), ("--only", "W10")])
def test_a_wrong_option_is_named_and_nothing_is_measured(tmp_path: Path, args: tuple[str, str]) -> None:
    done = bench(tmp_path, *args)
    assert done.returncode == 2
    assert args[1].rstrip("0") in done.stderr
    assert done.stdout == ""


LATER = [
    "W4.parallel",
    "W5.signal",
    "W5.update",
    "W5.signals",
    "W6.lateness",
    "W7.answer",
    "W7.replay",
    "W8.waiting",
    "W8.passive",
    "W8.restart",
]


@pytest.mark.slow
def test_messages_timers_kills_and_memory_are_measured_and_held_against_what_was_recorded(
    tmp_path: Path,
) -> None:
    args = ("--scale", "0.002", "--only", "W4,W5,W6,W7,W8", "--journal", "disk")
    done = bench(tmp_path, *args, "--json", "found.json", "--record", "recorded.json")
    assert done.returncode == 0, done.stderr
    lines = {line["key"]: line for line in json.loads((tmp_path / "found.json").read_text())["lines"]}
    assert list(lines) == LATER
    for line in lines.values():
        assert line["value"] > 0 or line["unit"] == "KiB"
        assert isinstance(line["reached"], bool)
    found = json.loads((tmp_path / "recorded.json").read_text())
    assert found["W4.parallel"] == pytest.approx(lines["W4.parallel"]["limits"][0]["ratio"], abs=0.001)
    assert "W8.waiting" in found

    before = {"W4.parallel": found["W4.parallel"] / 100}
    (tmp_path / "recorded.json").write_text(json.dumps(before))
    done = bench(
        tmp_path, "--scale", "0.002", "--only", "W4", "--journal", "disk", "--check", "recorded.json"
    )
    assert done.returncode == 1
    assert "FALLEN: W4.parallel: 0.0" in done.stdout


@pytest.mark.slow
def test_runs_that_continue_as_new_are_measured_when_they_are_named(tmp_path: Path) -> None:
    done = bench(tmp_path, "--scale", "0.02", "--only", "continue", "--journal", "disk", "--json", "x.json")
    assert done.returncode == 0, done.stderr
    speed, growth = json.loads((tmp_path / "x.json").read_text())["lines"]
    assert (speed["key"], growth["key"]) == ("continue.speed", "continue.growth")
    assert speed["detail"]["n"] == 200
    assert speed["value"] > 0
    assert speed["limits"][0]["ratio"] > 0
    assert growth["value"] > 0


@pytest.mark.slow
def test_virtual_days_are_measured_when_they_are_named(tmp_path: Path) -> None:
    done = bench(tmp_path, "--scale", "0.1", "--only", "kit", "--journal", "disk", "--json", "x.json")
    assert done.returncode == 0, done.stderr
    (line,) = json.loads((tmp_path / "x.json").read_text())["lines"]
    assert line["key"] == "kit.virtual-days"
    assert line["value"] > 0
    assert line["limits"][0]["ratio"] > 0


@pytest.mark.slow
def test_a_hundred_thousand_timers_are_measured_when_they_are_named(tmp_path: Path) -> None:
    done = bench(
        tmp_path, "--scale", "0.002", "--only", "timers-100k", "--journal", "disk", "--json", "x.json"
    )
    assert done.returncode == 0, done.stderr
    (line,) = json.loads((tmp_path / "x.json").read_text())["lines"]
    assert line["key"] == "timers-100k.lateness"
    assert line["detail"]["n"] == 200
    assert line["detail"]["spare_seconds"] > 0
    assert line["value"] > 0


def test_only_what_is_worse_than_four_fifths_of_the_recorded_figure_has_fallen(tmp_path: Path) -> None:
    limit = Limit("bare", 1.0, 2.4)
    lines = [
        Line("a", "W1", "", 1.0, "ms", (limit,)),
        Line("b", "W8", "", 5.0, "KiB"),
        Line("c", "W8", "", 5.0, ""),
    ]
    path = tmp_path / "recorded.json"
    recorded.write(path, lines)
    assert recorded.read(path) == {"a": 2.4, "b": 5.0}
    assert recorded.fallen(lines, {"a": 2.4, "b": 5.0}) == []
    assert recorded.fallen(lines, {"a": 1.93, "b": 4.01, "c": 1, "gone": 1}) == []
    assert recorded.fallen(lines, {"a": 1.91, "b": 3.99}) == [
        "a: 0.80 x of the recorded figure (ratio to the bare limit 2.40, was 1.91)",
        "b: 0.80 x of the recorded figure (KiB 5.00, was 3.99)",
    ]


@pytest.mark.parametrize("text", [None, "{", "[1]", '{"a": "b"}'])
def test_recorded_figures_that_are_none_are_called_so(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "recorded.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"recorded\.json.*(cannot be read|holds no recorded figures)"):
        recorded.read(path)


@pytest.mark.slow
def test_it_runs_as_a_module_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everact.bench", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0
    assert bench(tmp_path, "--help").stdout == done.stdout


def test_a_journal_without_the_runs_fails_the_benchmark(tmp_path: Path, monkeypatch, capsys) -> None:
    def lost(_bed: bed.Bed) -> list[Line]:
        raise bed.LostRunsError("the journal holds 3 completed runs, not 4")

    monkeypatch.setitem(driver.WORKLOADS, "W1", lost)
    assert driver.main(scale=0.01, only="W1", journal=str(tmp_path)) == 1
    assert "FAILED: the journal holds 3 completed runs, not 4" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_bare_log_commits_each_value_with_its_size(tmp_path: Path) -> None:
    log = BareLog(tmp_path / "bare")
    assert log.flags["sync"]
    assert log.replay([5, 100_000, 70]) > 0
    log.close()
    with lmdb.open(str(tmp_path / "bare"), readonly=True, max_dbs=16, lib_version=0) as env:
        logged = env.open_db(b"log0", create=False)
        with env.begin() as txn:
            assert [len(value) for _key, value in txn.cursor(db=logged)] == [5, 100_000, 70]


async def test_lanes_call_so_often_and_no_more_at_a_time() -> None:
    now = most = calls = 0

    async def call() -> None:
        nonlocal now, most, calls
        calls += 1
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    await in_lanes(50, 7, call)
    assert (calls, most, now) == (50, 7, 0)


def test_the_median_run_is_shown_as_a_whole() -> None:
    runs = [
        [Line("k", "W1", "x", value, "ms", (Limit("bare", value / 2, 2.0),), detail={"run": i})]
        for i, value in enumerate((5.0, 1.0, 3.0))
    ]
    (line,) = median_lines(runs)
    assert line.value == 3.0
    assert line.limits[0].value == 1.5
    assert line.detail == {"run": 2, "all_runs": [5.0, 1.0, 3.0]}
    assert median_lines(runs[:1])[0].detail == {"run": 0}


def test_the_table_is_aligned_and_shows_all_limits() -> None:
    limits = (Limit("one", 2.0, 3.0), Limit("another", 12_345.0, 0.5))
    line = Line("k", "W2", "speed", 6_000.0, "/s", limits, "at least 7,000/s", reached=False)
    rows = table([line]).splitlines()
    assert len(rows) == 4
    assert rows[2].index("one") == rows[3].index("another")
    assert rows[2].endswith("at least 7,000/s: missed")
    assert "12,345 /s" in rows[3]


def test_figures_have_no_more_digits_than_they_deserve() -> None:
    assert [show(v, "ms").strip() for v in (0.1234, 123.456, 12_345.6)] == [
        "0.123 ms",
        "123.5 ms",
        "12,346 ms",
    ]
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([1], 0.99) == 1


def test_the_file_system_of_a_path_is_found() -> None:
    kind, _device = machine.file_system(Path("/proc"))
    assert kind in ("proc", "unknown")


def test_volatile_memory_is_not_the_first_choice(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: "/dev/shm")
    monkeypatch.setattr(machine, "file_system", lambda p: ("tmpfs" if str(p) == "/dev/shm" else "ext4", ""))
    monkeypatch.chdir(tmp_path)
    assert str(machine.default_place()) != "/dev/shm"
    about = {
        "python": "", "event_loop": "", "platform": "", "processor": "", "cpus": 1, "usable_cpus": 1, "load_1min": 0.0,
        "versions": {}, "journal_file_system": "tmpfs", "journal_device": "", "durability": {},
    }  # fmt: skip
    assert "a sync costs nothing" in machine.describe(about)[-1]


@pytest.mark.slow
def test_children_are_measured_and_all_of_them_are_in_the_journal(tmp_path: Path) -> None:
    done = bench(
        tmp_path, "--scale", "0.005", "--only", "Children", "--json", "found.json", "--journal", "disk"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    speed, growth = found["lines"]
    assert (speed["key"], growth["key"]) == ("children.speed", "children.growth")
    assert speed["detail"]["completed_in_journal"] == 7 * (5 + 1) + 50 + 1
    assert speed["value"] > 0 < growth["value"]


@pytest.mark.slow
def test_sagas_are_measured_when_they_are_named(tmp_path: Path) -> None:
    done = bench(tmp_path, "--scale", "0.01", "--only", "saga", "--journal", "disk", "--json", "x.json")
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "x.json").read_text())["lines"]
    assert [line["key"] for line in lines] == ["saga.latency", "saga.speed"]
    assert all(line["value"] > 0 for line in lines)
