"""One page after the other of a journal is made zeros, and a child process uses what is left.

``python -m support.zeroed_pages DIRECTORY`` prints what each child said, or the signal that ended it, by page.
"""

import faulthandler
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from everact.journal.errors import JournalError
from everact.journal.lmdb_store import LmdbStore
from support.clock import START
from support.journal_model import Host, Model, make_full_journal, make_tiny, use_everything

PAGE = 4096
NEW_RUNS = 150


def outcome_without(page, source, model, path):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(20)
            os.close(reading)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            shutil.copytree(source, path)
            with (path / "data.mdb").open("r+b") as file:
                file.seek(page * PAGE)
                file.write(bytes(PAGE))
            os.write(writing, use_damaged(path, model).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    shutil.rmtree(path, ignore_errors=True)
    return said or f"ended by signal {os.WTERMSIG(status)}"


def use_damaged(path, model):
    """Read everything, then write; commits may fail, but not go on failing."""
    try:
        store = LmdbStore(path, durability="os")
        refused = use_everything(store, model)
        host = Host(store, Model(), START + 10**12)
        failures = 0
        for number in range(NEW_RUNS):
            host.start(f"new-{number}")
            failures += host.commit() is not None
        written = len(host.model.runs)
        store.close()
    except JournalError as error:
        return f"refused: {error}"
    except BaseException as error:
        return f"WRONG: {error!r}"
    if failures > 2 or written != NEW_RUNS - failures:
        return f"WRONG: {failures} commits failed, {written} runs are new"
    return f"refused: {refused[0]}" if refused else "whole"


def main(directory):
    faulthandler.disable()
    logging.disable()
    source = directory / "made"
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        model = make_full_journal(source)
        pages = (source / "data.mdb").stat().st_size // PAGE
        said = {page: outcome_without(page, source, model, directory / "journal") for page in range(pages)}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
