"""Refuses what leaves the journal while workflow code runs: files, network, processes, and what else there is to see.

Two layers, both put in place once for the whole process and silent outside turns:

* an audit hook, on the lowest call that all libraries share; it sees neither clocks nor random numbers;
* with ``guard="strict"``, thin wrappers of the functions that the interpreter does not report.

Whether a turn is running is what the running event loop says: it costs turns nothing.
"""

from __future__ import annotations

import functools
import importlib
import linecache
import os
import re
import sys
import sysconfig
import threading
import zoneinfo
from asyncio import _get_running_loop
from collections.abc import Callable, Collection
from itertools import islice
from types import FrameType
from typing import Any, Literal

from .asyncio_forbidden import ForbiddenInWorkflowError
from .determinism_rules import (
    CLOCKS,
    ENVIRONMENT,
    EVENTS,
    RANDOM_FUNCTIONS,
    SLEEP,
    THREADS,
    URANDOM,
    UUIDS,
    Rule,
)
from .event_loop import WorkflowLoop

Guard = Literal["warn", "strict", "off"]
GUARDS: tuple[Guard, ...] = ("warn", "strict", "off")

_ALLOWED = re.compile(r"#\s*everact:\s*allow\b(?:\[([^\]]*)\])?")

#: Packages whose own file and clock work goes on inside a turn: importing, showing and logging errors, time zones,
#: pickled classes, debuggers. Nothing of it decides anything.
_LET_THROUGH = frozenset(
    [
        "importlib",
        "zipimport",
        "linecache",
        "tokenize",
        "traceback",
        "warnings",
        "logging",
        "zoneinfo",
        "cloudpickle",
        "pdb",
        "bdb",
        "coverage",
        "pydevd",
        "_pydevd_bundle",
        "debugpy",
    ]
)
#: Functions that begin a turn or a query: what is below them on the stack is ours.
_BOUNDARY = frozenset(
    [
        ("event_loop", "run_until_idle"),
        ("workflow_instance", "_turn"),
        ("handlers", "query"),
        ("handlers", "validate"),
        ("asyncio_discard", "close_coroutines"),
    ]
)
#: Calls the function of ``workflow.side_effect``.
_SIDE_EFFECT = ("side_effects", "_called")
_ROOM = __name__.rpartition(".")[0]
_PACKAGE = __name__.partition(".")[0]
_STDLIB = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_ZONES = tuple(folder + os.sep for folder in zoneinfo.TZPATH)
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
#: Events whose first argument is what is read.
_READS = frozenset(["open", "os.listdir", "os.scandir"])


def allows(line: str) -> Collection[str] | None:
    """What the comment of a source line lets through: codes of rules; none are all of them. None is no comment."""
    found = _ALLOWED.search(line)
    return None if found is None else frozenset((found[1] or "").replace(",", " ").split())


_installing = threading.Lock()
_installed: set[str] = set()


def install_guards(guard: Guard) -> None:
    """Put the guards of a mode in place; calling it again does nothing. They stay until the process ends."""
    with _installing:
        if guard != "off" and "audit" not in _installed:
            _installed.add("audit")
            sys.addaudithook(_audit)
        if guard == "strict" and "strict" not in _installed:
            _installed.add("strict")
            _wrap_all()


def _audit(
    event: str,
    args: tuple[Any, ...],
    # Bound here: the hook goes on being called while the interpreter takes its modules apart.
    refused: Any = EVENTS,
    running: Any = _get_running_loop,
    kind: Any = WorkflowLoop,
) -> None:
    if event in refused:
        loop = running()
        if isinstance(loop, kind):
            name, rule = refused[event]
            what = os.fspath(args[0]) if args and isinstance(args[0], str | os.PathLike) else None
            if what is None or event not in _READS or not _is_installed(what, args):
                _refuse(loop, name if what is None else f"{name}({what!r})", rule)


def _is_installed(path: str, args: tuple[Any, ...]) -> bool:
    """Whether a library reads what was installed with it or with the system: time zones, translations, certificates.

    As an import it is the same wherever the same code is; and zoneinfo reads from C, where no frame shows it.
    """
    if not (path.startswith((*_STDLIB, *_ZONES)) or _PACKAGES.search(path)):
        return False
    return len(args) < 3 or not args[2] & (os.O_WRONLY | os.O_RDWR)  # it is (path, mode, flags) for open


def _refuse(loop: WorkflowLoop, call: str, rule: Rule) -> None:
    """Raise, unless the run or the line is not guarded.

    Raises:
        ForbiddenInWorkflowError: What was called, where, and what to do instead.
        RunDiscarded: The run was dropped from memory; its ``finally`` blocks do nothing any more.
    """
    if loop.host.guard == "off":
        return
    place = outermost = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        name = frame.f_code.co_name
        package = module.partition(".")[0]
        if package in _LET_THROUGH or name == "__del__" or (module == "weakref" and name == "__call__"):
            return  # the last two are finalizers: the garbage collector has called them, not this run
        if module.startswith(_ROOM):
            ours = (module[len(_ROOM) + 1 :], name)
            if ours == _SIDE_EFFECT:
                return  # replay does not call it again
            if ours in _BOUNDARY:
                break
        filename = frame.f_code.co_filename
        if package != _PACKAGE and not _is_stdlib(filename):
            if _is_allowed(frame, rule):
                return
            outermost = f"{filename}:{frame.f_lineno}"
            if not place and not _PACKAGES.search(filename):
                place = outermost
        frame = frame.f_back
    if loop.discarded:
        loop.refuse()
    place = place or outermost
    raise ForbiddenInWorkflowError(f"{call} (at {place})" if place else call, rule.advice)


def _is_stdlib(filename: str) -> bool:
    return filename.startswith("<frozen ") or (
        filename.startswith(_STDLIB) and not _PACKAGES.search(filename)
    )


def _is_allowed(frame: FrameType, rule: Rule) -> bool:
    """Whether the call that a frame is in bears the comment, on any of its lines."""
    code = frame.f_code
    first, last, _, _ = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    line = frame.f_lineno
    lines = range(min(first or line, line), max(last or line, line) + 1)
    found = (allows(linecache.getline(code.co_filename, n, frame.f_globals)) for n in lines)
    return any(codes is not None and (not codes or rule.code in codes) for codes in found)


# --- strict: what the interpreter does not report


def _wrap_all() -> None:
    for dotted, rule in {**CLOCKS, **RANDOM_FUNCTIONS, **URANDOM, **UUIDS, "time.sleep": SLEEP}.items():
        module = importlib.import_module(dotted.partition(".")[0])
        _wrap(module, dotted.partition(".")[2], dotted, rule)
    _wrap(threading.Thread, "start", "threading.Thread.start", THREADS)
    # os.getenv(), os.environ.get() and the rest all end here.
    _wrap(type(os.environ), "__getitem__", "os.environ", ENVIRONMENT)


def _wrap(owner: Any, name: str, call: str, rule: Rule) -> None:
    stock: Callable[..., Any] | None = getattr(owner, name, None)
    if stock is None:
        return  # another Python, another platform

    @functools.wraps(stock)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        loop = _get_running_loop()
        if isinstance(loop, WorkflowLoop) and loop.host.guard == "strict":
            _refuse(loop, call, rule)
        return stock(*args, **kwargs)

    setattr(owner, name, guarded)
