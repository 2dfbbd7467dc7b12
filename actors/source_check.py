"""The static check: finds in the source of workflows what replays differently, without running or importing anything.

It reads the methods of a workflow class, and the functions of the same module that they lead to. What it cannot
resolve by name (objects of other modules, values passed in) it leaves to the guards of turns and to replay.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import logging
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

from .errors import DeterminismWarning, RegistrationError
from .source_walk import Finding, SourceFile, is_workflow
from .turn_guard import Guard

log = logging.getLogger("everact.runtime")

#: Findings shown in the message of one RegistrationError.
SHOWN = 10


class SourceMissingError(Exception):
    """The source of a class cannot be read, or does not hold it; it was not checked."""


# --- for a runtime


def check_workflows(classes: Iterable[type[Any]], guard: Guard) -> None:
    """Check classes as a runtime of this mode does; each class is read once in a process.

    Raises:
        RegistrationError: ``guard`` is ``strict``, and something is wrong in any workflow.
    """
    if guard == "off":
        return
    wrong: list[Finding] = []
    for cls in classes:
        for finding in findings_of(cls):
            if finding.severity == "error" and guard == "strict":
                wrong.append(finding)
            elif finding.severity != "hint":
                _warn(finding)
    if wrong:
        wrong = sorted(set(wrong))
        more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        places = "".join(f"\n  {finding}" for finding in wrong[:SHOWN])
        raise RegistrationError(
            f"guard='strict' refuses workflow code that replays differently; correct it, or put '# everact: allow' on "
            f"the line:{places}{more}"
        )


def _warn(finding: Finding) -> None:
    warnings.warn_explicit(
        f"{finding.text} (or put '# everact: allow' on the line)",
        DeterminismWarning,
        finding.path,
        finding.line,
        registry=_warned.setdefault(finding.path, {}),
    )


#: What was warned of, by file, as ``warnings`` keeps it for modules.
_warned: dict[str, dict[Any, Any]] = {}
_known: weakref.WeakKeyDictionary[type[Any], list[Finding]] = weakref.WeakKeyDictionary()
_unread: set[str] = set()


def findings_of(cls: type[Any]) -> list[Finding]:
    """What the check finds in a class and its bases; nothing where the source cannot be read, which is logged once."""
    found = _known.get(cls)
    if found is None:
        found = []
        for base in cls.__mro__:
            if base.__module__ in ("builtins", "typing", "abc"):
                continue
            try:
                found += check_class(base)
            except SourceMissingError as error:
                if base.__module__ not in _unread:
                    _unread.add(base.__module__)
                    log.info(
                        "workflow %r is not checked for what replays differently: %s", base.__name__, error
                    )
        _known[cls] = found = sorted(set(found))
    return found


# --- plain functions, for tools as well


def check_source(source: str, path: str) -> list[Finding]:
    """What the check finds in all workflow classes of a file, in order of its lines.

    Args:
        source: Its text.
        path: Its name, for the findings.

    Raises:
        SyntaxError: It is no Python.
    """
    module = SourceFile(source, path)
    found: set[Finding] = set()
    for cls, scope in module.classes:
        if is_workflow(cls, scope):
            found |= set(module.check(cls, scope))
    return sorted(found)


def check_class(cls: type[Any]) -> list[Finding]:
    """What the check finds in one class, without its bases of other modules.

    Raises:
        SourceMissingError: Its source cannot be read.
    """
    functions = [
        inspect.unwrap(fn)
        for value in vars(cls).values()
        if inspect.isfunction(fn := getattr(value, "__func__", value))
    ]
    own = [fn for fn in functions if fn.__code__.co_qualname.rpartition(".")[0] == cls.__qualname__]
    if not own:
        return []  # nothing but what it inherits
    path, line = own[0].__code__.co_filename, own[0].__code__.co_firstlineno
    source = "".join(linecache.getlines(path, own[0].__globals__))
    if not source:
        raise SourceMissingError(f"there is no source of {path}")
    try:
        for node, scope in (module := _module(source, path)).classes:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if node.name == cls.__name__ and first <= line <= (node.end_lineno or first):
                return sorted(set(module.check(node, scope)))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise SourceMissingError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    raise SourceMissingError(f"{path} has no class {cls.__name__} at line {line}: it has changed")


@functools.lru_cache(1)
def _module(source: str, path: str) -> SourceFile:
    return SourceFile(source, path)
