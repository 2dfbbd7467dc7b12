"""The corpus of exported histories: what ``everact journal export`` wrote, replayed for ever by ``Replayer``.

``python -m support.corpus`` (from ``tests``, with the version that is to be kept installed) adds what is missing to
``tests/histories``: to ``good`` one history for each thing that runs can do; to ``bad`` the same done in another way,
and damaged ones, each with the text that a report has of it; to ``old`` runs as old versions wrote them. What exists
is never written again.
"""

import asyncio
import contextlib
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import lmdb

from everact import Runtime
from everact.exceptions import EveractError
from everact.journal import child_events, log_record
from everact.journal import events as ev
from everact.journal.events import decode_record
from everact.journal.export import export_runs
from everact.journal.lmdb_store import LmdbStore
from everact.testing import Replayer
from support import old_format
from support.corpus_workflows import ACTIVITIES, CHANGED, KINDS, WORKFLOWS, Polite
from support.histories import _anywhere
from support.hosting import settled, until
from support.old_format import unpack

FOLDER = Path(__file__).parents[1] / "histories"
GOOD, BAD, OLD = FOLDER / "good", FOLDER / "bad", FOLDER / "old"


async def run(kind, workflow, runtime):
    """Do one thing, with whatever it needs from outside."""
    handle = await runtime.spawn(workflow, kind, id=kind)
    if kind in ("signal", "handler", "update"):
        await settled(runtime)
        if kind == "handler":
            await handle.signal("note", "bad")
        for text in ("two", "fail") if kind == "update" else ():
            with contextlib.suppress(EveractError):
                await handle.execute_update("change", text)
        await handle.signal("note", "one")
    if kind == "cancelled":
        await settled(runtime)
        await handle.cancel("not wanted")
    with contextlib.suppress(EveractError):
        await handle.result()


async def record(path, workflows, *, interceptors=()):
    """Run everything on a new journal."""
    async with Runtime(
        path, workflows=workflows, activities=ACTIVITIES, interceptors=interceptors, grace=0, durability="os"
    ) as runtime:
        if interceptors:
            await run("activity", workflows[0], runtime)
            return
        for kind in KINDS:
            await run(kind, workflows[0], runtime)
        await runtime.execute("Something", 1, id="dynamic")
        await runtime.spawn(workflows[0], "signal", id="open")
        await until(lambda: runtime._shard.find("open").state.waiting)


def exported(path):
    """The runs of a journal as documents, oldest first."""
    store = LmdbStore(path, read_only=True)
    try:
        return list(export_runs(store, left_out=print, damaged=print, moved=print))
    finally:
        store.close()


def write(document, folder, name):
    """Save a document, unless there is one of this name."""
    path = folder / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(_everywhere(document), indent=1) + "\n")


def _everywhere(value):
    """Without the folders of the machine that made it, at every depth."""
    if isinstance(value, dict):
        return {name: _everywhere(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_everywhere(one) for one in value]
    return _anywhere(value)


def replayer(name):
    """What replays a history of the corpus."""
    interceptors = [Polite()] if name.startswith("headers") else []
    return Replayer(workflows=WORKFLOWS, activities=ACTIVITIES, interceptors=interceptors)


def told(path):
    """What a report says of a bad history, without lines of code, which move."""
    (result,) = replayer(path.stem).replay(path, raise_on_failure=False).results
    failure = result.failure
    text = "\n".join((failure.kind, *failure.lines()))
    text = re.sub(r"\n[ ^~]+(?=\n)", "", text)  # marks below the code, which not every Python puts there
    text = re.sub(r'File "[^"]*?([\w.]+)", line \d+', r'File "\1"', text)
    return re.sub(r"\S*?(\w+\.py):\d+", r"\1", text) + "\n"


def _changed(change):
    """A good history, changed by hand."""
    document = json.loads((GOOD / "extra.json").read_text())
    change(document)
    return document


def _started(document):
    return document["records"][0]["inputs"][0]


#: What may be wrong with a file, and how it comes to that.
WRONG = {
    "damaged-gap": lambda it: it["records"].pop(1),
    "damaged-start": lambda it: it["records"].pop(0),
    "damaged-flags": lambda it: it["records"][-1].update(flags=0),
    "damaged-event": lambda it: it["records"][0]["outputs"][0].update(tag="??"),
    "damaged-field": lambda it: it["records"][0]["outputs"][0].pop("command"),
    "damaged-time": lambda it: it["records"][0].update(at="noon"),
    "damaged-version": lambda it: it.update(version=99),
    "damaged-format": lambda it: it.update(format="something else"),
    "undecodable-argument": lambda it: _started(it)["args"][0].update(json=7),
    "undecodable-result": lambda it: it["records"][1]["inputs"][0]["result"].update(json="two"),
    "undecodable-codec": lambda it: _started(it)["args"][0].update(encoding="zstd"),
    "crashed": lambda it: _started(it)["args"][0].update(json="nothing"),
}


def _sparse(value):
    """A document of a version that did not have the fields that have their defaults in it."""
    if isinstance(value, list):
        return [_sparse(one) for one in value]
    if not isinstance(value, dict):
        return value
    cls = getattr(ev, value.get("event", ""), None) or getattr(child_events, value.get("event", ""), None)
    count = 0 if cls is None else len(cls.__struct_defaults__)
    optional = cls.__struct_fields__[-count:] if count else ()
    empty = (None, "", [], 0, False)
    return {name: _sparse(one) for name, one in value.items() if not (name in optional and one in empty)}


def write_old(folder):
    """Runs of format 1, record by record as they were written then."""
    with tempfile.TemporaryDirectory() as directory:
        path = unpack(old_format.FORMAT_1, Path(directory, "journal"))
        for key, entries in enumerate(raw_runs(path)):
            events = [event for entry in entries for event in decode_record(entry.body).inputs]
            target = folder / f"format-1-{events[0].workflow_id}-{key}.hex.json"
            if not target.exists():
                records = [[entry.at, entry.body.hex()] for entry in entries]
                stored = {"workflow": events[0].workflow_type, "records": records}
                folder.mkdir(exist_ok=True)
                target.write_text(json.dumps(stored, indent=0) + "\n")


def raw_runs(path):
    """The entries of each run of a journal of format 1, read without any of our stores."""
    runs = {}
    with lmdb.open(str(path), max_dbs=32, lib_version=0, lock=False) as env:
        log = env.open_db(b"log0", create=False)
        with env.begin() as txn:
            for _key, record in txn.cursor(db=log):
                for entry in log_record.decode_record(record):
                    runs.setdefault(entry.run_key, []).append(entry)
    return runs.values()


async def write_all():
    """Make every history and save what is missing."""
    for folder, workflows in ((GOOD, WORKFLOWS), (BAD, CHANGED)):
        with tempfile.TemporaryDirectory() as directory:
            await record(f"{directory}/plain", workflows)
            await record(f"{directory}/headers", workflows, interceptors=[Polite()])
            seen = Counter()
            for document in exported(f"{directory}/plain"):
                name = document["workflow_id"]
                seen[name] += 1
                if folder == GOOD or (document["workflow_type"] != "Kid" and name != "open"):
                    write(document, folder, name if seen[name] == 1 else f"{name}-{seen[name]}")
            for document in exported(f"{directory}/headers"):
                write(document, folder, "headers")
    for name, change in WRONG.items():
        write(_changed(change), BAD, name)
    cut = BAD / "damaged-cut.json"
    if not cut.exists():
        cut.write_text((GOOD / "activity.json").read_text()[:500])
    for name in ("steps", "saga", "continued-2", "children", "update"):
        write(_sparse(json.loads((GOOD / f"{name}.json").read_text())), OLD, f"sparse-{name}")
    write_old(OLD)
    for path in sorted(BAD.glob("*.json")):
        text = path.with_suffix(".txt")
        if not text.exists():
            text.write_text(told(path))


if __name__ == "__main__":
    sys.exit(asyncio.run(write_all()))
