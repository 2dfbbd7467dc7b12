"""Print the pyright configuration for the installed copy: the one in pyproject.toml plus where things are.

Run from the root of the repository; the output belongs into ``.typecheck/``.
"""

import json
import tomllib
from pathlib import Path

INSIDE = (
    "reportInvalidTypeVarUse",  # mypy wants the overloads' implementation to name their variables
    "reportUnknownArgumentType",
    "reportUnknownLambdaType",
    "reportUnknownMemberType",
    "reportUnknownVariableType",
    "reportUnnecessaryComparison",
    "reportUnnecessaryIsInstance",
    "reportUnnecessaryCast",
)


def main() -> None:
    """Print it."""
    config = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["pyright"]
    beside = [folder for folder in ("examples", "tests/typing") if any(Path(folder).rglob("*.py"))]
    config["include"] = ["everact", *(f"../{folder}" for folder in beside)]
    config["executionEnvironments"] = [
        # A wrong call is marked `type: ignore`: were it accepted, that comment would be the error.
        {"root": "../tests/typing", "extraPaths": ["."], "reportUnnecessaryTypeIgnoreComment": "error"},
        *({"root": f"../{path}", "extraPaths": ["."]} for path in sorted(Path("examples").glob("*/"))),
        # Inside, where users' values pass through, mypy --strict decides on Any; examples and calls stay strict.
        {"root": ".", **dict.fromkeys(INSIDE, "none")},
    ]
    print(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
