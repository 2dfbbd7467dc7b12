"""What a check has found, for people and for programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._version import __version__
from ..actors import determinism_rules
from ..actors.determinism_rules import Rule
from ..actors.source_walk import Finding
from ..journal_commands import _count
from .files import Checked

_LEVELS = {"error": "error", "warning": "warning", "hint": "note"}
_GITHUB = {"error": "error", "warning": "warning", "hint": "notice"}
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def rules() -> dict[str, list[tuple[Rule, list[str]]]]:
    """The rules by code, each with the names that it is about."""
    named: dict[Rule, list[str]] = {}
    tables: tuple[Mapping[str, Rule], ...] = (
        determinism_rules.CALLS,
        determinism_rules.CALLS_WITHOUT_ARGUMENTS,
        determinism_rules.METHODS,
        determinism_rules.PATH_METHODS,
        determinism_rules.VALUES,
        determinism_rules.AWAITED,
    )
    for rule in (determinism_rules.SET_ORDER, determinism_rules.MODULE_STATE):
        named[rule] = []
    for table in tables:
        for name, rule in table.items():
            named.setdefault(rule, []).append(name)
    found: dict[str, list[tuple[Rule, list[str]]]] = {}
    for rule in sorted(named):
        found.setdefault(rule.code, []).append((rule, named[rule]))
    return found


def rules_data() -> list[dict[str, Any]]:
    """The rules as plain values."""
    return [
        {"code": code, "severity": rule.severity, "why": rule.why, "instead": rule.advice, "names": names}
        for code, each in rules().items()
        for rule, names in each
    ]


def rules_text() -> Iterator[str]:
    """The rules for people."""
    for code, each in rules().items():
        for rule, names in each:
            shown = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
            about = f" ({shown})" if names else ""
            yield f"{code} {rule.severity}: {rule.why}{about}"
            yield f"      instead: {rule.advice}"


def text(checked: Checked) -> Iterator[str]:
    """For people, a line each."""
    for finding in checked.findings:
        yield str(finding)
    errors = sum(finding.severity == "error" for finding in checked.findings)
    unchecked = len(checked.unreadable)
    missing = f"{_count(unchecked, 'file')} could not be checked"
    files = _count(checked.files - unchecked, "file")
    looked = f"{_count(checked.workflows, 'workflow class', 'workflow classes')} in {files}"
    if checked.findings:
        others = len(checked.findings) - errors
        parts = [_count(errors, "error")] if errors else []
        parts += [_count(others, "warning")] if others else []
        found = f"{' and '.join(parts)} in {looked}; '# everact: allow' on a line lets it through"
        yield f"{found}; {missing}" if unchecked else found
    elif not unchecked:
        yield f"nothing found in {looked}"
    elif unchecked < checked.files:
        yield f"{missing}; nothing found in the rest: {looked}"
    else:
        yield missing


def data(checked: Checked) -> dict[str, Any]:
    """As plain values, for JSON."""
    return {
        "findings": [
            {
                "path": finding.path,
                "line": finding.line,
                "column": finding.column,
                "code": finding.code,
                "severity": finding.severity,
                "call": finding.call,
                "message": finding.message,
                "instead": finding.fix,
            }
            for finding in checked.findings
        ],
        "unreadable": [{"path": path, "why": why} for path, why in checked.unreadable.items()],
        "files": checked.files,
        "workflows": checked.workflows,
    }


def github(checked: Checked) -> Iterator[str]:
    """As annotations of GitHub Actions."""
    for finding in checked.findings:
        place = {
            "file": finding.path,
            "line": finding.line,
            "col": finding.column,
            "title": f"Everact {finding.code}",
        }
        properties = ",".join(f"{name}={_property(str(value))}" for name, value in place.items())
        yield f"::{_GITHUB[finding.severity]} {properties}::{_message(finding.text)}"
    for path, why in checked.unreadable.items():
        yield f"::error file={_property(path)},title=Everact::{_message(why)}"


def _message(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")


def sarif(checked: Checked) -> dict[str, Any]:
    """As SARIF 2.1.0, for code scanning."""
    codes = rules()
    order = {code: index for index, code in enumerate(codes)}
    return {
        "$schema": _SARIF,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "everact lint",
                        "version": __version__,
                        "rules": [_sarif_rule(code, each) for code, each in codes.items()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, order) for finding in checked.findings],
                "invocations": [
                    {
                        "executionSuccessful": not checked.unreadable,
                        "toolExecutionNotifications": [
                            {
                                "level": "error",
                                "message": {"text": why},
                                "locations": [
                                    {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}
                                ],
                            }
                            for path, why in checked.unreadable.items()
                        ],
                    }
                ],
            }
        ],
    }


def _sarif_rule(code: str, each: Sequence[tuple[Rule, list[str]]]) -> dict[str, Any]:
    rule = each[0][0]
    return {
        "id": code,
        "shortDescription": {"text": "; ".join(dict.fromkeys(one.why for one, _ in each))},
        "help": {"text": "; ".join(dict.fromkeys(one.advice for one, _ in each))},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding, order: Mapping[str, int]) -> dict[str, Any]:
    region = {"startLine": finding.line, "startColumn": finding.column}
    return {
        "ruleId": finding.code,
        "ruleIndex": order[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.text},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(finding.path)}, "region": region}}
        ],
    }


def _uri(path: str) -> str:
    """A path as a reference, relative where it was."""
    from urllib.parse import quote  # noqa: PLC0415

    pure = Path(os.path.normpath(path))
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
