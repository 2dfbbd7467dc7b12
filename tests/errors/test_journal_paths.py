"""Journals that cannot be opened: a Runtime says why and what to do, and leaves everything as it was."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.bad_input import refuses

from everact import Runtime, workflow
from everact.exceptions import (
    JournalLockedError,
    JournalVersionError,
    NotAJournalError,
)


@workflow.defn
class Keeps:
    @workflow.run
    async def run(self, text: str) -> str:
        return text


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below, its bytes and its time."""
    return {
        str(file.relative_to(path.parent)): (
            file.read_bytes() if file.is_file() else b"",
            file.stat().st_mtime_ns,
        )
        for file in [path, *sorted(path.rglob("*"))]
        if file.name != "lock.mdb"
    }


async def open_and_close(path: Path, **options) -> None:
    async with Runtime(path, workflows=[Keeps], **options):
        pass


async def fill(path: Path) -> None:
    async with Runtime(path, workflows=[Keeps]) as runtime:
        await runtime.execute(Keeps, "kept", id="order-42")


async def test_a_file(tmp_path):
    path = tmp_path / "orders.db"
    path.write_text("precious")
    before = contents(path)
    with refuses(
        NotAJournalError, repr(str(path)), "is not a directory, so it is not a journal", "directory"
    ):
        await open_and_close(path)
    with refuses(NotAJournalError, repr(str(path / "inside")), repr(str(path)), "is not a directory"):
        await open_and_close(path / "inside")
    assert contents(path) == before


async def test_a_directory_with_something_else(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"jpeg")
    before = contents(tmp_path)
    with refuses(NotAJournalError, repr(str(tmp_path)), "holds no journal", "photo.jpg"):
        await open_and_close(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("data", [b"garbage" * 2000, b"", b"\0" * 8192, b"x"])
async def test_a_data_file_that_is_garbage(tmp_path, data):
    (tmp_path / "data.mdb").write_bytes(data)
    before = contents(tmp_path)
    with refuses(NotAJournalError, repr(str(tmp_path)), "journal"):
        await open_and_close(tmp_path)
    assert contents(tmp_path) == before


async def test_an_lmdb_environment_of_another_program(tmp_path):
    import lmdb

    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    before = contents(tmp_path)
    with refuses(NotAJournalError, repr(str(tmp_path)), "LMDB environment that is not an Everact journal"):
        await open_and_close(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("version", [b"999", b"0", b"junk"])
async def test_a_journal_of_another_format(tmp_journal, version):
    import lmdb

    from everact.journal.lmdb_format import FORMAT_KEY

    await fill(tmp_journal)
    with lmdb.open(str(tmp_journal), max_dbs=8) as env, env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, version, db=env.open_db(b"meta", txn=txn))
    before = contents(tmp_journal)
    with refuses(
        JournalVersionError,
        repr(str(tmp_journal)),
        f"has format version {version.decode()}",
        "this version of Everact",
    ):
        await open_and_close(tmp_journal)
    assert contents(tmp_journal) == before


# --- without the right to ---------------------------------------------------------------------------------------

AS_NOBODY = """
import asyncio, os, sys
from everact import Runtime
from everact.exceptions import JournalAccessError
import everact.journal.lmdb_store

async def main():
    try:
        async with Runtime(sys.argv[1]):
            print("opened")
    except JournalAccessError as error:
        print(error)

if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
asyncio.run(main())
"""


def run(source: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        # Another user may not write the data of coverage.
        env={**os.environ, "COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""},
    )
    assert not done.stderr, done.stderr
    return done.stdout.strip()


@pytest.fixture
def open_parents(tmp_path):
    """Let other users come as far as the test's own directory."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path("/tmp") or not str(folder).startswith("/tmp/"):
            break
        folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


@pytest.mark.slow
async def test_a_journal_that_this_user_may_not_write(open_parents):
    path = open_parents / "journal"
    await fill(path)
    for file in path.iterdir():
        file.chmod(0o444)
    path.chmod(0o555)
    before = contents(path)
    said = run(AS_NOBODY, path)
    path.chmod(0o755)
    assert repr(str(path)) in said
    assert "cannot be written by this user" in said
    assert "change the owner or the rights" in said
    assert contents(path).keys() == before.keys()


@pytest.mark.slow
async def test_a_journal_that_this_user_may_not_read(open_parents):
    path = open_parents / "journal"
    await fill(path)
    path.chmod(0o700 if os.geteuid() == 0 else 0o000)
    said = run(AS_NOBODY, path)
    path.chmod(0o755)
    assert repr(str(path)) in said
    assert "by this user" in said
    assert "Permission denied" in said


@pytest.mark.slow
def test_a_directory_that_this_user_may_not_create(open_parents):
    open_parents.chmod(0o555)
    said = run(AS_NOBODY, open_parents / "new" / "journal")
    open_parents.chmod(0o755)
    assert repr(str(open_parents / "new" / "journal")) in said
    assert "cannot be created (Permission denied)" in said
    assert not (open_parents / "new").exists()


# --- two at a time ----------------------------------------------------------------------------------------------

OWNER = """
import asyncio, sys
from everact import Runtime

async def main():
    async with Runtime(sys.argv[1]):
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_second_process_is_told_who_has_the_journal(tmp_journal):
    await fill(tmp_journal)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_journal)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        try:
            assert owner.stdout.readline() == "open\n"
            with refuses(
                JournalLockedError,
                f"the journal {str(tmp_journal)!r} is in use by process {owner.pid}: ",
                "one process writes a journal at a time",
                "Stop that process, or give this one another directory.",
            ) as caught:
                await open_and_close(tmp_journal)
            assert (caught.value.path, caught.value.pid) == (str(tmp_journal), owner.pid)
        finally:
            owner.stdin.close()
            owner.wait()
    async with Runtime(tmp_journal, workflows=[Keeps]) as runtime:
        assert await runtime.ref("order-42", Keeps).result() == "kept"


async def test_a_second_runtime_in_the_same_process(tmp_journal):
    link = tmp_journal.with_name("link")
    async with Runtime(tmp_journal, workflows=[Keeps]) as runtime:
        link.symlink_to(tmp_journal)
        for path in (tmp_journal, link, os.path.relpath(tmp_journal)):
            with refuses(
                JournalLockedError,
                f"is already open in this process ({os.getpid()}), by another Runtime or store: ",
                "use that one, or leave it first",
            ):
                await open_and_close(path)
        assert await runtime.execute(Keeps, "goes on") == "goes on"
    await open_and_close(link)


async def test_a_journal_that_could_not_be_opened_is_not_kept_from_the_next(tmp_path):
    path = tmp_path / "journal"
    path.write_text("in the way")
    for _ in range(2):
        with refuses(NotAJournalError, "is not a directory"):
            await open_and_close(path)
    path.unlink()
    await open_and_close(path)
