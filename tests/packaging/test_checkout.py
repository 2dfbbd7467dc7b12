"""What the build cannot see for itself; these look at the checkout and so never run on the wheel."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("actors", "cluster", "journal", "supervision")


def test_every_nested_package_is_listed_for_the_build() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = sorted({p.parent for room in ("everact", *ROOMS) for p in (ROOT / room).rglob("*.py")})
    expected = {}
    for folder in folders:
        parts = folder.relative_to(ROOT).parts
        expected[".".join(parts if parts[0] == "everact" else ("everact", *parts))] = "/".join(parts)
    assert sorted(config["packages"]) == sorted(expected)
    mapped = config["package-dir"]
    for name, folder in expected.items():
        parent = name
        while parent not in mapped:
            parent = parent.rpartition(".")[0]
        rest = name.removeprefix(parent).replace(".", "/")
        assert mapped[parent] + rest == folder


def test_only_the_helpers_of_the_tests_are_a_package() -> None:
    # `tests` is on the path, so a package `packaging` or `typing` in it would hide the real one.
    packages = {p.parent.relative_to(ROOT / "tests").parts[0] for p in (ROOT / "tests").rglob("__init__.py")}
    assert packages <= {"support"}
