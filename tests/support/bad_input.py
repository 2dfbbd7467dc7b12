"""What tests of wrong calls share: the text must say it, and nothing may have been written."""

import contextlib
from collections.abc import Iterator

import pytest

from everact import Runtime
from everact.journal.memory_store import MemoryStore


@contextlib.contextmanager
def refuses(kind: type[BaseException], *texts: str) -> Iterator[pytest.ExceptionInfo]:
    """The block raises exactly this class, and its text has all of these parts."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.type is kind
    said = str(caught.value)
    missing = [text for text in texts if text not in said]
    assert not missing, f"{missing} not in: {said}"


@contextlib.contextmanager
def nothing_written(runtime: Runtime) -> Iterator[None]:
    """The journal is afterwards exactly as before: no record, no run, nobody in the mailboxes."""
    before = seen(runtime)
    yield
    assert seen(runtime) == before


def seen(runtime: Runtime) -> tuple[object, ...]:
    """All that a caller could have changed."""
    shard = runtime._open()
    rows = [(key, row.workflow_id, row.status) for key, row in shard.index.rows.items()]
    open_runs = [(actor.workflow_id, actor.state.last_event) for actor in shard.actors.values()]
    return shard.store.position, rows, open_runs, sorted(shard.newest)


def memory_runtime(workflows=(), activities=(), **options) -> Runtime:
    """A runtime whose journal is in memory."""
    return Runtime(MemoryStore(), workflows=workflows, activities=activities, **options)
