"""R5: a failed sync shuts the journal, whatever the error code; a write that found no room is no failed sync."""

import os
import shutil
import subprocess

import pytest
from support.faulty_disk import compiled

from everact.journal.lmdb_store import LmdbStore
from everact.journal.store import Entry, Position

from .lmdb_processes import Script, run

EIO, ENOSPC, SHORT = 5, 28, -1

BEGIN = """
    def say_error(use):
        try:
            use()
        except JournalError as error:
            say(type(error).__name__)
            return str(error)
        raise AssertionError("nothing was raised")

    store = LmdbStore(path, durability=os.environ.get("DURABILITY", "fsync"))
    reader = LmdbStore(path, read_only=True)
    store.append(store.position, [entry(1)])
    os.environ["FAULTY_DISK"] = os.environ.get("FAULT", "")
    text = say_error(lambda: store.append(store.position, [Entry(2, 2, 0, 2, os.urandom(100_000))]))
    os.environ["FAULTY_DISK"] = ""
    """

STOPPED = """
    for use in (
        lambda: store.append(store.position, [entry(3)]),
        lambda: store.position,
        store.reopen,
        lambda: list(store.scan()),
        lambda: list(reader.scan()),
        lambda: reader.read([Location(1, 0)]),
        lambda: LmdbStore(path),
        lambda: LmdbStore(path, read_only=True),
    ):
        say_error(use)
    say(text)
    """

GOES_ON = """
    assert store.reopen() == Position(2, 2)
    store.append(store.position, [entry(3)])
    store.close()
    say([each.body for _, entries in reader.scan() for each in entries])
    """


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("faulty"))


@pytest.fixture
def faulty(library, tmp_path, tmp_journal):
    """Run a script whose first big append meets faults; returns its lines and what the disk did."""

    def play(source, fault, **environment):
        journal_of_calls = tmp_path / "calls"
        lines = run(
            BEGIN + source,
            tmp_journal,
            LD_PRELOAD=str(library),
            FAULT=fault,
            FAULTY_DISK_LOG=str(journal_of_calls),
            **environment,
        )
        return lines, journal_of_calls.read_text().splitlines()

    return play


SYNCS = {
    "sync, EIO": (f"sync:1:{EIO}", "a commit failed (mdb_txn_commit: Input/output error) and there is room"),
    "sync, ENOSPC": (
        f"sync:1:{ENOSPC}",
        "a commit failed (mdb_txn_commit: No space left on device) and there is",
    ),
    "every sync": (f"sync:0:{EIO}", "a sync of its data file failed (Input/output error)"),
    "every sync on a full disk": (
        f"sync:0:{ENOSPC} room:0:{ENOSPC}",
        "a sync of its data file failed (No space",
    ),
    "meta page": (f"meta:1:{EIO}", "a commit failed (mdb_txn_commit: Input/output error) and there is room"),
    "short meta page": (
        f"meta:1:{SHORT}",
        "a commit failed (mdb_txn_commit: Input/output error) and there is",
    ),
    "short write with room": (f"write:1:{SHORT}", "a commit failed (mdb_txn_commit: Input/output error) and"),
    "failed write with room": (f"write:1:{EIO}", "a commit failed (mdb_txn_commit: Input/output error) and"),
    "failed test for room": (
        f"write:1:{ENOSPC} room:1:{EIO}",
        "a commit failed (mdb_txn_commit: No space left on device) and the data file cannot grow (Input/output er",
    ),
}


@pytest.mark.parametrize("kind", SYNCS)
def test_a_sync_that_may_have_failed_shuts_the_journal_and_drops_the_cache(faulty, tmp_journal, kind):
    fault, reason = SYNCS[kind]
    (first, *later, locked, attached, text), calls = faulty(STOPPED + "reader.close(); store.close()", fault)
    assert {first, *later, attached} == {"JournalDiskError"}
    assert locked == "JournalLockedError"
    assert text.startswith(f"the disk of the journal '{tmp_journal}' failed: {reason}")
    assert text.endswith("repeat the call with the same request_id: it is applied once.")
    assert calls[0].startswith("failed ")
    assert calls[-1] == "dropped unmapped"
    store = LmdbStore(tmp_journal, durability="os")
    assert store.position == Position(2, 2)
    assert [entries for _, entries in store.scan()] == [[Entry(1, 1, 0, 1, b"turn 1")]]
    store.close()


@pytest.mark.parametrize("write", [SHORT, ENOSPC, EIO])
def test_a_write_without_room_is_no_failed_sync(faulty, write):
    (first, last), calls = faulty(GOES_ON, f"write:1:{write} room:1:{ENOSPC}")
    assert first == "CommitUnknownError"
    assert last == "[b'turn 1', b'turn 3']"
    assert calls == ["failed write", "failed room"]


def test_without_syncs_no_commit_is_a_failed_sync(faulty):
    (first, _), calls = faulty(GOES_ON, f"write:1:{SHORT}", DURABILITY="os")
    assert first == "CommitUnknownError"
    assert calls == ["failed write"]


def test_a_limit_of_the_process_is_no_failed_sync(tmp_journal):
    source = """
    import resource
    store = LmdbStore(path)
    store.append(store.position, [entry(1)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    try:
        while True:
            store.append(store.position, [Entry(2, 2, 0, 2, os.urandom(100_000))])
    except CommitUnknownError as error:
        assert type(error) is CommitUnknownError, error
    size = os.stat(path + "/data.mdb").st_size
    sequence = store.reopen().sequence
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.append(store.position, [Entry(3, 3, 0, 3, os.urandom(1 << 20))])
    assert store.position.sequence == sequence + 1
    say(size <= 1 << 20)
    """
    assert run(source, tmp_journal) == ["True"]


def test_a_full_map_is_no_failed_sync(tmp_journal):
    source = """
    store = LmdbStore(path, map_size=1 << 20)
    try:
        while True:
            store.append(store.position, [Entry(1, 1, 0, 1, os.urandom(50_000))])
    except CommitUnknownError as error:
        say(type(error).__name__)
    store.reopen()
    """
    assert run(source, tmp_journal) == ["CommitUnknownError"]


def test_a_first_commit_that_is_not_synced_is_named_and_leaves_no_lock(library, tmp_journal):
    LmdbStore(tmp_journal, durability="os").close()
    source = """
    os.environ["FAULTY_DISK"] = "sync:1:5"
    try:
        LmdbStore(path)
    except JournalDiskError as error:
        say(error.path)
    store = LmdbStore(path)
    say(store.position)
    """
    said = run(source, tmp_journal, LD_PRELOAD=str(library))
    assert said == [str(tmp_journal), "Position(epoch=2, sequence=1)"]


def test_a_store_that_reopens_after_another_failure_notices_a_failed_sync(library, tmp_journal):
    source = """
    from everact.journal.fault_points import armed
    store = LmdbStore(path)
    with armed("journal.commit.written", lambda: 1 / 0):
        try:
            store.append(store.position, [entry(1)])
        except CommitUnknownError as error:
            say(type(error).__name__)
    os.environ["FAULTY_DISK"] = "sync:1:5"
    try:
        store.reopen()
    except JournalDiskError as error:
        say(type(error).__name__)
    """
    said = run(source, tmp_journal, LD_PRELOAD=str(library))
    assert said == ["CommitUnknownError", "JournalDiskError"]


@pytest.fixture
def file_system(tmp_path):
    """Makes a file system on a device in memory, in a mount namespace that ends with its process."""
    if os.geteuid() or not all(map(shutil.which, ("unshare", "mkfs.ext4", "losetup"))):
        pytest.skip("needs root to make a file system")
    (tmp_path / "below").mkdir()
    (tmp_path / "mount").mkdir()

    def within(options, memory):
        prepare = f"""
        mount -t tmpfs -o size={memory} none {tmp_path}/below || exit 77
        truncate -s 64m {tmp_path}/below/image
        mkfs.ext4 -q {options} {tmp_path}/below/image || exit 77
        mount -o loop {tmp_path}/below/image {tmp_path}/mount || exit 77
        """
        command = ["unshare", "-m", "sh", "-c", prepare + 'exec "$@"', "sh"]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
            pytest.skip("may not mount a loop device here")
        return command

    return within, tmp_path / "mount" / "journal"


@pytest.mark.slow
def test_a_device_that_fails_below_a_file_system_with_room_shuts_the_journal(file_system):
    """The kernel's own failed sync: ENOSPC, while the file system has room."""
    within, path = file_system
    source = """
    store = LmdbStore(path)
    acknowledged = 0
    try:
        while True:
            store.append(store.position, [Entry(1, 1, 0, 1, os.urandom(500_000))])
            acknowledged += 1
    except JournalDiskError as error:
        say(error.reason)
    free = os.statvfs(path)
    assert free.f_bavail * free.f_bsize > 20 << 20
    store.close()
    assert acknowledged > 5
    # Linux's loop device takes a short write for a whole one, so the last record may be torn.
    whole = LmdbStore(path, read_only=True).scan()
    assert [next(whole)[0] for _ in range(acknowledged - 1)] == list(range(1, acknowledged))
    """
    with Script(source, path, within=within("-O ^has_journal", "24m")) as script:
        assert script.finish() == ["a sync of its data file failed (No space left on device)"]


@pytest.mark.slow
def test_a_file_system_that_turns_read_only_shuts_the_journal(file_system):
    """As ext4 does by itself after an error of its device."""
    within, path = file_system
    source = """
    import subprocess
    store = LmdbStore(path)
    store.append(store.position, [entry(1)])
    subprocess.run(["mount", "-o", "remount,abort", os.path.dirname(path)], check=True)
    try:
        store.append(store.position, [entry(2)])
    except JournalDiskError as error:
        say(error.reason)
    store.close()
    try:
        LmdbStore(path)
    except JournalAccessError as error:
        say(error)
    assert list(LmdbStore(path, read_only=True).scan()) == [(1, [entry(1)])]
    """
    with Script(source, path, within=within("", "128m")) as script:
        failed, refused = script.finish()
    assert failed == "a sync of its data file failed (Read-only file system)"
    assert "read-only" in refused.lower()
