"""``everact lint``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..command_calls import failed
from ..journal_commands import _print_json, _say

if TYPE_CHECKING:
    from .files import Checked

__all__ = ["app"]

app = typer.Typer()

FORMATS = ("text", "json", "github", "sarif")
#: What a Runtime says as well; EV3 is worth a look.
SELECTED = ("EV1", "EV2")


@app.command()
def lint(  # noqa: PLR0917  (typer takes options as parameters)
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Files, folders, or packages by name; - for standard input.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="WORD", help="text, json, github or sarif.")
    ] = "text",
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES", help="Only these rules, by beginnings of codes: EV1,EV201. Default: EV1,EV2."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODES", help="Not these.", show_default=False)
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Leave out of folders what has such a path or name: '*_pb2.py'.",
            show_default=False,
        ),
    ] = None,
    stdin_filename: Annotated[
        str, typer.Option(metavar="FILE", help="Name of what comes from standard input.")
    ] = "<stdin>",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there; default: standard output."),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="List the rules, and what to write instead.")
    ] = False,
) -> None:
    """Find in the source of workflows what replays differently. Nothing is run or imported.

    The exit code is 1 when something is found, and 2 when a file could not be checked.
    """
    from . import report  # noqa: PLC0415  (each command loads only what it needs)
    from .files import Checker, NoSuchCodeError, python_files  # noqa: PLC0415

    if form not in FORMATS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}, not {form!r}")
    if rules:
        if form == "json":
            _print_json(report.rules_data())
        else:
            for line in report.rules_text():
                _say(line)
        return
    if not paths:
        raise typer.BadParameter("say what to check: files, folders or packages")
    known = report.rules()
    wanted = _codes(select, known) or SELECTED
    unwanted = _codes(ignore, known)
    if paths == ["-"]:
        checked = Checker([]).check_text(sys.stdin.buffer.read(), stdin_filename)
    else:
        try:
            checked = Checker(python_files(paths, exclude or ()), paths).check()
        except NoSuchCodeError as error:
            raise failed(error, 2) from None
    checked.findings = [
        finding
        for finding in checked.findings
        if finding.code.startswith(wanted) and not (unwanted and finding.code.startswith(unwanted))
    ]
    _write(checked, form, output)
    if form != "github":
        for path, why in checked.unreadable.items():
            _say(f"everact: error: {path}: {why}", error=True)
    raise typer.Exit(2 if checked.unreadable else 1 if checked.findings else 0)


def _codes(given: list[str] | None, known: Iterable[str]) -> tuple[str, ...]:
    """Beginnings of codes, checked."""
    codes = tuple(code for one in given or () for code in one.replace(",", " ").split())
    for code in codes:
        if not any(each.startswith(code) for each in known):
            raise typer.BadParameter(f"there is no rule {code!r}; `everact lint --rules` lists them")
    return codes


def _write(checked: Checked, form: str, output: Path | None) -> None:
    import msgspec  # noqa: PLC0415

    from . import report  # noqa: PLC0415

    if form in {"text", "github"}:
        lines = list(report.text(checked) if form == "text" else report.github(checked))
        if output is None:
            for line in lines:
                _say(line)
            return
        written = "".join(f"{line}\n" for line in lines)
    else:
        found = report.data(checked) if form == "json" else report.sarif(checked)
        if output is None:
            _print_json(found)
            return
        written = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    output.write_text(written, encoding="utf-8")
