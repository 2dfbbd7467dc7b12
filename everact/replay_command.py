"""``everact replay``: check that the code as it is now repeats stored histories."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .command_calls import check_words, failed
from .debugging.code_options import CodeFiles, CodeNames
from .history_files import check_history_file
from .journal_commands import AsJson, _print_json, _printable, _progress

if TYPE_CHECKING:
    from .testing import Replayer, ReplayReport

__all__ = ["app"]

app = typer.Typer()

T = TypeVar("T")


@app.command()
def replay(  # noqa: PLR0917
    histories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[HISTORY|DIR]...",
            help="Files of `everact journal export` or `everact history --json`, or directories of them.",
            show_default=False,
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal",
            "-j",
            metavar="DIR",
            help="Replay the runs of this journal instead, which is only read.",
            show_default=False,
        ),
    ] = None,
    module: CodeFiles = None,
    workflows: CodeNames = None,
    activities: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE[:NAME]",
            show_default=False,
            help="An activity, or all that a module has, for workflows that call them by name; again for more.",
        ),
    ] = None,
    replayer: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            show_default=False,
            help="An everact.testing.Replayer, or a function that makes one, in place of --workflows: with "
            "interceptors, converters, codecs.",
        ),
    ] = None,
    hash_seed: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            metavar="N",
            show_default=False,
            help="Replay in another process under this PYTHONHASHSEED too; again for more.",
        ),
    ] = None,
    workflow_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="NAME",
            help="With --journal: only this workflow type; again for more.",
            show_default=False,
        ),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="With --journal: only this status.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --journal: only the newest.", show_default=False),
    ] = None,
    jump_steps: Annotated[
        bool, typer.Option(help="Pass over the bodies of steps that are checkpoints, as a runtime does.")
    ] = True,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML there too.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay stored histories with the code as it is now. Nothing is written, and no activity runs.

    The exit code is 1 when the code does not repeat one, or one cannot be read.
    """
    if (journal is None) == (not histories):
        raise typer.BadParameter("give files or directories of histories, or a journal with --journal")
    if journal is None and (workflow_type or status or limit):
        raise typer.BadParameter("--type, --status and --limit are for --journal")
    if (replayer is None) == (not (module or workflows)):
        raise typer.BadParameter(
            "say which code is to be replayed: --module FILE, --workflows MODULE[:NAME], or --replayer MODULE:NAME"
        )
    if replayer is not None and (activities or hash_seed or not jump_steps):
        raise typer.BadParameter(
            "--activities, --hash-seed and --no-jump-steps are for --module and --workflows: the Replayer has its "
            "own"
        )
    from .actors.options import check_status  # noqa: PLC0415  (each command loads only what it needs)

    check_words(check_status, status)
    sys.path.insert(0, "")  # as with python -m: modules of the working directory
    try:
        chosen = _replayer(
            replayer,
            module or [],
            workflows or [],
            activities,
            hash_seeds=hash_seed or [],
            jump_steps=jump_steps,
        )
        for path in histories or ():
            check_history_file(path, may_be_folder=True)
        report = _report(chosen, histories or [], journal, workflow_type, status, limit)
    except (TypeError, ValueError) as error:
        raise failed(error, 1) from None
    if junit is not None:
        junit.write_text(report.as_junit() + "\n", encoding="utf-8")
    if as_json:
        _print_json(report.as_data())
    else:
        for line in report.as_text().splitlines():
            typer.echo(_printable(line))
    raise typer.Exit(0 if report.passed else 1)


def _report(  # noqa: PLR0917
    replayer: Replayer,
    histories: list[Path],
    journal: Path | None,
    types: list[str] | None,
    status: str | None,
    limit: int | None,
) -> ReplayReport:
    with _progress("replaying") as progress:
        if journal is None:
            return replayer.replay_many(histories, raise_on_failure=False, progress=progress)
        return replayer.replay_journal(
            journal,
            status=status,
            types=types or None,
            limit=limit,
            raise_on_failure=False,
            progress=progress,
        )


def _replayer(
    named: str | None,
    files: list[Path],
    workflows: list[str],
    activities: list[str] | None,
    *,
    hash_seeds: list[int],
    jump_steps: bool,
) -> Replayer:
    from .actors.definitions import DEFINITION, ActivityDefinition, WorkflowDefinition  # noqa: PLC0415
    from .debugging.code_files import module_of  # noqa: PLC0415
    from .testing import Replayer  # noqa: PLC0415

    def declared(given: Iterable[tuple[str, str, Any]], kind: type[Any]) -> list[Any]:
        found: dict[int, Any] = {}
        for option, name, it in given:
            each = (
                list(vars(it).values())
                if inspect.ismodule(it)
                else list(it)
                if isinstance(it, list | tuple)
                else [it]
            )
            ours = [one for one in each if isinstance(_own(one, DEFINITION), kind)]
            if not ours or (not inspect.ismodule(it) and len(ours) < len(each)):
                what = "workflow class" if kind is WorkflowDefinition else "activity"
                raise typer.BadParameter(f"{option} {name}: there is no {what} in it")
            found |= {id(one): one for one in ours}
        return list(found.values())

    if named is not None:
        made = _named("--replayer", named)
        made = made() if callable(made) else made
        if not isinstance(made, Replayer):
            raise typer.BadParameter(
                f"--replayer {named}: that is no Replayer, and no function that makes one"
            )
        return made
    functions = None
    if activities is not None:
        named_ones = [("--activities", name, _named("--activities", name)) for name in activities]
        functions = declared(named_ones, ActivityDefinition)
    code = [("--module", str(path), module_of(path)) for path in files]
    code += [("--workflows", name, _named("--workflows", name)) for name in workflows]
    return Replayer(
        workflows=declared(code, WorkflowDefinition),
        activities=functions,
        hash_seeds=hash_seeds,
        jump_steps=jump_steps,
    )


def _own(it: Any, name: str) -> Any:
    """An attribute of the object itself: a class that a declared one is the base of is not declared."""
    return getattr(it, "__dict__", {}).get(name)


def _named(option: str, name: str) -> Any:
    """What ``module:name`` means, or a module.

    Raises:
        CodeNotFoundError: Importing it starts a program.
        BadParameter: It cannot be imported, or has no such name.
    """
    module, _, path = name.partition(":")
    from .debugging.loading import CodeNotFoundError, only_importing  # noqa: PLC0415

    try:
        with only_importing(repr(module)):
            found: Any = importlib.import_module(module)
    except CodeNotFoundError:
        raise
    except Exception as error:
        raise typer.BadParameter(
            f"{option} {name}: the module {module!r} cannot be imported from here ({type(error).__name__}: {error})"
        ) from error
    for part in path.split(".") if path else ():
        if not hasattr(found, part):
            raise typer.BadParameter(f"{option} {name}: {module!r} has no {path!r}")
        found = getattr(found, part)
    return found
