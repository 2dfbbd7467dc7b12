"""The demo on made-up site-packages folders: its kills, its table, its proof, and what it says of bad packages."""

import base64
import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from everact import Runtime
from everact.demo import proof
from everact.demo.proof import Restart
from everact.demo.record import (
    Entry,
    Findings,
    Package,
    PackageResult,
    RecordError,
    check_files,
    find_packages,
    parse_record,
    read_record,
)
from everact.demo.supervisor import DemoError, Start, Supervisor

Row = tuple[str, str, str]


def hash_of(data: bytes, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def install(
    place: Path, name: str, files: Iterable[str], extra: Iterable[Row] = (), version: str = "1.0"
) -> Path:
    """Put a distribution there, each file holding its own name; returns its dist-info."""
    info = place / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata)
    rows: list[Row] = [(f"{info.name}/METADATA", hash_of(metadata.encode()), str(len(metadata)))]
    for file in files:
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(file)
        rows.append((file, hash_of(file.encode()), str(len(file))))
    with (info / "RECORD").open("w", newline="") as record:
        csv.writer(record).writerows([*rows, *extra, (f"{info.name}/RECORD", "", "")])
    return info


def demo(cwd: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it from an empty folder, with its temporary files there."""
    cwd.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "everact", "demo", *map(str, options)],
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(cwd), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve packages of 120 files, three batches each."""
    place = tmp_path_factory.mktemp("twelve") / "site-packages"
    for number in range(12):
        install(place, f"pack{number:02}", [f"pack{number:02}/m{file}.py" for file in range(120)])
    return place


# --- whole runs -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.smoke
def test_two_kills_change_nothing_in_the_result(twelve: Path, tmp_path: Path) -> None:
    done = demo(tmp_path / "empty", "--path", twelve, "--json")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["ok"]
    assert [package["name"] for package in seen["packages"]] == [f"pack{number:02}" for number in range(12)]
    for package in seen["packages"]:
        written = sum(file.stat().st_size for file in (twelve / package["name"]).iterdir())
        metadata = (twelve / f"{package['name']}-1.0.dist-info" / "METADATA").stat().st_size
        assert (package["files"], package["no_hash"]) == (122, 1)
        assert package["bytes_hashed"] == written + metadata
        assert not package["mismatches"] + package["missing"] + package["unreadable"]
    assert len(seen["proof"]) == 4
    assert all(claim["holds"] for claim in seen["proof"])
    # The kills were real: three processes, the first two of them killed, each where it should be.
    assert len(set(seen["workers"])) == 3
    assert [kill["pid"] for kill in seen["kills"]] == seen["workers"][:2]
    first, second = seen["kills"]
    assert (first["packages_recorded"], second["packages_recorded"]) == (4, 8)
    assert 0 < first["results_in_journal"] < second["results_in_journal"]
    for kill in seen["kills"]:
        assert kill["results_repeated"] == 0
        assert kill["activities_cut"] > 0  # at least the one whose report made the supervisor kill
    assert not any((tmp_path / "empty").iterdir())  # the temporary journal is gone


@pytest.mark.slow
async def test_the_text_says_what_was_done_and_the_journal_can_be_kept(twelve: Path, tmp_path: Path) -> None:
    journal = tmp_path / "kept"
    done = demo(tmp_path, "--path", twelve, "--journal", journal)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert len(re.findall(r"^kill -9 of worker \d+ after [\d.]+ s, at [48] of 12 packages$", out, re.M)) == 2
    assert len(re.findall(r"^ ?pack\d\d +1\.0 +122 ", out, re.M)) == 12
    assert "PROVED: every result is recorded once: 12 packages, 12 signals in the parent's history" in out
    assert "PROVED: every package workflow completed once: 12 completed of 12 runs of 12 workflows" in out
    assert re.search(r"PROVED: no finished work was repeated: \d+ activity results.* 0 run again", out)
    assert "PROVED: the table equals a plain loop's" in out
    assert "FAILED" not in out
    assert out.count("\n") < 60
    assert done.stderr == ""
    assert f"journal: {journal}" in out
    async with Runtime(journal) as runtime:
        assert await runtime.count_workflows(status="completed") == 13


@pytest.mark.slow
def test_a_tampered_and_a_missing_file_are_named_and_fail_the_run(tmp_path: Path) -> None:
    place = tmp_path / "site-packages"
    install(place, "good", ["good.py"])
    install(place, "tampered", ["tampered/a.py", "tampered/b.py"])
    install(place, "holed", ["holed/a.py", "holed/b.py"])
    (place / "tampered/b.py").write_text("evil")
    (place / "holed/a.py").unlink()
    bare = place / "bare-2.dist-info"
    bare.mkdir()
    (bare / "METADATA").write_text("Name: bare\nVersion: 2\n")
    done = demo(tmp_path / "empty", "--path", place, "--kills", "1")
    assert done.returncode == 1
    assert re.search(r"^ ?tampered +1\.0 +4 +\d+ +1 +0 +1 +changed: tampered/b\.py", done.stdout, re.M)
    assert re.search(r"^ ?holed +1\.0 +4 +\d+ +0 +1 +1 +missing: holed/a\.py", done.stdout, re.M)
    assert re.search(r"^ ?bare +2 +0 +0 +0 +0 +0 +no RECORD", done.stdout, re.M)
    assert "2 packages are not as installed: holed, tampered" in done.stdout
    assert "FAILED" not in done.stdout  # the proof holds all the same


@pytest.mark.slow
def test_two_packages_are_killed_at_the_first_points(tmp_path: Path) -> None:
    place = tmp_path / "site-packages"
    install(place, "one", ["one.py"])
    install(place, "two", ["two.py"])
    done = demo(tmp_path / "empty", "--path", place, "--json", "--keep")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(set(seen["workers"])) == 3
    assert Path(seen["journal"]).is_dir()
    assert [kill["packages"] for kill in seen["kills"]] == [2, 2]


@pytest.mark.slow
def test_a_worker_that_dies_of_something_else_is_an_error(twelve: Path, tmp_path: Path) -> None:
    class Assassin:
        def show(self, recorded: int, packages: int, files: int) -> None:
            os.kill(supervisor.workers[-1], signal.SIGKILL)

        def say(self, text: str) -> None:
            pytest.fail(text)

    supervisor = Supervisor(str(tmp_path / "journal"), "audit", [str(twelve)], 0, Assassin())
    with pytest.raises(DemoError, match="ended with exit code -9: it said nothing"):
        supervisor.run()


@pytest.mark.slow
def test_a_worker_says_in_one_line_why_it_cannot_work(twelve: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo(tmp_path, "--path", twelve, "--journal", tmp_path / "file" / "journal")
    assert done.returncode == 1
    assert re.fullmatch(r"everact: error: worker \d+ ended with exit code 1: .+\n", done.stderr)


@pytest.mark.slow
def test_a_worker_ends_when_its_supervisor_is_gone(twelve: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everact.demo.worker", str(tmp_path / "journal"), "audit", str(twelve)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        for line in worker.stdout:
            if json.loads(line)["event"] == "recorded":
                worker.stdin.close()  # as the system does it for a process that has died
                break
        worker.stdout.read()
        assert worker.wait() == 1


# --- the proof --------------------------------------------------------------------------------------------------


def test_the_proof_sees_what_was_done_twice_or_not_at_all() -> None:
    table = [PackageResult(Package(name, name, "1", "")) for name in ("a", "b")]
    sent = [Start(0, "x/1", "send_result"), Start(0, "y/1", "send_result")]
    assert proof._recorded_once(table, ["x/1", "y/1"], sent).holds
    assert not proof._recorded_once(table, ["x/1"], sent).holds
    assert not proof._recorded_once(table, ["x/1", "x/1"], sent).holds
    assert not proof._recorded_once(table, ["x/1", "y/1", "y/1"], [*sent, *sent]).holds
    assert not proof._recorded_once([table[0], table[0]], ["x/1", "y/1"], sent).holds
    assert proof._completed_once(table, [("a", "completed"), ("b", "completed")]).holds
    assert not proof._completed_once(table, [("a", "completed"), ("b", "running")]).holds
    assert not proof._completed_once(table, [("a", "completed"), ("a", "completed")]).holds
    assert not proof._completed_once(table, [("a", "completed"), ("b", "completed"), ("b", "failed")]).holds
    assert proof._nothing_repeated(Counter(["x/1", "y/1"]), [Restart(1, 0, 1)]).holds
    assert not proof._nothing_repeated(Counter(["x/1", "x/1"]), []).holds
    assert not proof._nothing_repeated(Counter(["x/1"]), [Restart(1, 1, 0)]).holds


# --- RECORD -----------------------------------------------------------------------------------------------------


def test_lines_of_a_record_may_be_quoted_and_short() -> None:
    text = 'a.py,sha256=AbC_-,3\r\n"b, c.py",md5=xyz==,\n"say ""hi"".py",,\nd.py\n\ne.py,sha256=\n'
    assert parse_record(text) == [
        Entry("a.py", "sha256", "AbC_-"),
        Entry("b, c.py", "md5", "xyz=="),
        Entry('say "hi".py'),
        Entry("d.py"),
        Entry("e.py", "sha256", ""),
    ]


def test_an_unusable_record_says_why(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="not CSV"):
        parse_record('"a.py,sha256=x,1\n')
    with pytest.raises(RecordError, match="^no RECORD$"):
        read_record(Package("a", "a", "1", str(tmp_path)))
    (tmp_path / "RECORD").write_bytes(b"\xff\xfe,,\n")
    with pytest.raises(RecordError, match="not UTF-8"):
        read_record(Package("a", "a", "1", str(tmp_path)))
    with pytest.raises(RecordError, match="not in a directory"):
        read_record(Package("a", "a", "1", ""))


def test_every_kind_of_line_is_checked_as_it_should(tmp_path: Path) -> None:
    place = tmp_path / "lib" / "python3" / "site-packages"
    script = b"#!/bin/sh\n"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_bytes(script)
    absolute = tmp_path / "absolute"
    absolute.write_bytes(b"abs")
    info = install(
        place,
        "odd",
        ["odd/with, comma.py", "odd/ä.py"],
        extra=[
            ("../../../bin/tool", hash_of(script), ""),
            (str(absolute), hash_of(b"abs"), "3"),
            ("odd/md5.txt", hash_of(b"five", "md5"), "4"),
            ("odd/sha512.txt", hash_of(b"512", "sha512"), ""),
            ("odd/padded.txt", hash_of(b"pad") + "=", ""),
            ("odd/unknown.txt", "crc99=abc", ""),
            ("odd/shake.txt", "shake_128=abc", ""),
            ("odd/plain.txt", "", ""),
            ("odd/__pycache__/gone.pyc", "", ""),
            ("odd/gone.txt", "", ""),
            ("odd/sha512-bad.txt", hash_of(b"other", "sha512"), ""),
            ("odd", "", ""),
            ("odd/pipe", hash_of(b""), ""),
            ("odd/nul\0.txt", hash_of(b""), ""),
            ("odd/plain.txt/below", hash_of(b""), ""),
        ],
    )
    for name, data in {
        "md5.txt": b"five",
        "sha512.txt": b"512",
        "padded.txt": b"pad",
        "unknown.txt": b"?",
        "shake.txt": b"?",
        "plain.txt": b"plain",
        "sha512-bad.txt": b"512",
    }.items():
        (place / "odd" / name).write_bytes(data)
    os.mkfifo(place / "odd" / "pipe")
    (package,) = find_packages([str(place)])
    found = check_files(package, read_record(package))
    assert found.files == 3 + 15 + 1
    assert found.changed == ("odd/sha512-bad.txt",)
    assert found.missing == ("odd/gone.txt", "odd/plain.txt/below")
    assert found.unreadable == ("odd", "odd/pipe", "odd/nul\0.txt")
    assert found.unhashed == 5  # unknown, shake, plain, the compiled one, RECORD itself
    read = [info / "METADATA", place / "odd/with, comma.py", place / "odd/ä.py", absolute]
    assert found.bytes == sum(path.stat().st_size for path in read) + len(
        script + b"five" + b"512" * 2 + b"pad"
    )
    assert not PackageResult(package, found).is_sound


def test_findings_of_batches_add_up() -> None:
    parts = [Findings(2, 10, 1, ("a",)), Findings(1, 5, 0, (), ("b",), ("c",))]
    assert sum(parts, Findings()) == Findings(3, 15, 1, ("a",), ("b",), ("c",))


def test_packages_are_found_whatever_their_metadata(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "same", [])
    install(second, "same", [])
    (first / "broken-3.1.dist-info").mkdir()
    (first / "old.egg-info").write_text("Metadata-Version: 1.0\nName: Old\nVersion: 0.1\n")
    found = find_packages([str(first), str(second), str(first)])
    assert [(package.key, package.name, package.version) for package in found] == [
        ("broken-3.1", "broken", "3.1"),
        ("Old-0.1", "Old", "0.1"),
        ("same-1.0", "same", "1.0"),
        ("same-1.0#2", "same", "1.0"),
    ]
    with pytest.raises(RecordError, match="^no RECORD$"):
        read_record(found[1])  # its metadata is a file, not a folder
