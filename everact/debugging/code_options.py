"""Options of the commands that replay: where the code is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CodeFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--module",
        "-m",
        metavar="FILE",
        help="A Python file with the code; again for another one.",
        show_default=False,
    ),
]
CodeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--workflows",
        "-w",
        metavar="MODULE[:NAME]",
        help="Code by the name that import knows it by: a workflow class, or all of a module; again for more.",
        show_default=False,
    ),
]
