"""K01: a forked child neither uses nor disturbs its parent's journal."""

import pytest

from .lmdb_processes import run

OPEN = """
    store = LmdbStore(path, durability="os")
    store.append(store.position, [entry(1)])
    reader = LmdbStore(path, read_only=True)
    list(store.scan())

    def go_on():
        before = store.position.sequence
        store.append(store.position, [entry(before)])
        for each in (store, reader):
            assert [n for n, _ in each.scan()] == list(range(1, before + 1))
            assert each.read([Location(before, 0)]) == [entry(before)]

    def fork(child):
        pid = os.fork()
        if not pid:
            child()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """


@pytest.mark.parametrize(
    "child",
    [
        "fork(lambda: None)",
        "fork(lambda: sys.exit(0))",
        """
    import gc
    def drop():
        global store, reader
        del store, reader
        gc.collect()
    fork(drop)
        """,
        """
    import multiprocessing
    process = multiprocessing.get_context("fork").Process(target=print)
    process.start()
    process.join()
    assert process.exitcode == 0
        """,
        """
    from concurrent.futures import ProcessPoolExecutor
    import multiprocessing
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
        """,
    ],
    ids=["leaves at once", "exits in order", "drops what it inherited", "multiprocessing", "pool"],
)
def test_a_child_does_not_disturb_its_parent(tmp_journal, child):
    run(OPEN + child + "\n    for _ in range(3): go_on()\n    store.close(); reader.close()", tmp_journal)


def test_a_child_that_uses_an_inherited_store_is_told_to_open_it_after_the_fork(tmp_journal):
    source = """
    store.append(store.position, [entry(2)])
    def child():
        for each in (store, reader):
            uses = [
                lambda: each.append(Position(1, 2), [entry(2)]),
                lambda: each.position,
                lambda: each.read([Location(1, 0)]),
                lambda: list(each.scan()),
                lambda: each.reopen(),
            ]
            for use in uses:
                try:
                    use()
                except JournalClosedError as error:
                    text = str(error)
                    assert f"in process {os.getppid()}, this is process {os.getpid()}: " in text
                    assert text.endswith("open the journal after the fork")
                else:
                    raise AssertionError
            each.close()
            each.close()
    env = store._shared.opened.env
    held = env.begin()
    fork(child)
    # To close an inherited environment would free the reader slots of the parent.
    assert str(os.getpid()) in env.readers()
    held.abort()
    go_on()
    """
    run(OPEN + source, tmp_journal)


def test_a_child_cannot_open_what_its_parent_has_open(tmp_journal):
    source = """
    def child():
        try:
            LmdbStore(path)
        except JournalLockedError as error:
            assert error.pid == os.getppid()
        else:
            raise AssertionError
        try:
            LmdbStore(path, read_only=True)
        except JournalAccessError as error:
            assert "was forked from one that has it open" in str(error)
            assert "spawn or forkserver" in str(error)
        else:
            raise AssertionError
    fork(child)
    go_on()
    """
    run(OPEN + source, tmp_journal)


def test_a_child_opens_a_journal_after_the_fork(tmp_journal):
    source = """
    store.close()
    reader.close()
    def child():
        with_own = LmdbStore(path)
        with_own.append(with_own.position, [entry(2)])
    fork(child)
    store = LmdbStore(path)
    assert store.position == Position(3, 3)
    reader = LmdbStore(path, read_only=True)
    go_on()
    """
    run(OPEN + source, tmp_journal)


def test_forks_while_another_thread_appends_and_a_third_opens_and_closes(tmp_journal):
    source = """
    import threading
    reader.close()
    done = threading.Event()
    failures = []

    def loop(work):
        try:
            while not done.is_set():
                work()
        except BaseException as error:
            failures.append(error)

    def look():
        reader = LmdbStore(path, read_only=True)
        reader.read([Location(1, 0)])
        reader.close()

    def write():
        store.append(store.position, [entry(1)])

    def other():
        own = LmdbStore(path + "2", durability="os")
        own.append(own.position, [entry(1)])
        own.close()

    threads = [threading.Thread(target=loop, args=(work,)) for work in (look, write, other)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        fork(lambda: None)
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert len(list(store.scan())) == store.position.sequence - 1
    """
    run(OPEN + source, tmp_journal)
