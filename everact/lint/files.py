"""Which files the check reads, and what it finds in them. Nothing of them is run or imported."""

from __future__ import annotations

import io
import os
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.machinery import PathFinder
from pathlib import Path, PurePath

from ..actors.source_names import Class, Scope, target_of
from ..actors.source_walk import Finding, SourceFile, is_workflow

#: Folders that hold no code of the project itself; those whose names begin with a point are left out as well.
SKIPPED = frozenset(["__pycache__", "node_modules", "venv", "env", "build", "dist", "site-packages"])
#: Bytes that every file has which declares a workflow; others of a folder are not parsed.
_TELLTALE = b"everact"
#: How many classes above one are looked at.
_BASES = 50


class NoSuchCodeError(ValueError):
    """A path or package that is to be checked is not there."""


@dataclass
class Checked:
    """What came of a check.

    Attributes:
        findings: By file and line.
        unreadable: Files that could not be checked, and why.
        files: How many were looked at.
        workflows: How many classes were checked.
    """

    findings: list[Finding] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    files: int = 0
    workflows: int = 0


def python_files(names: Iterable[str], exclude: Sequence[str] = ()) -> list[Path]:
    """The Python files of files, folders and packages that are named, each once.

    Args:
        names: Paths, or dotted names of packages and modules that this Python can find.
        exclude: Patterns of paths, or of names of files and folders, that are left out of folders.

    Raises:
        NoSuchCodeError: One is neither.
    """
    found: dict[Path, Path] = {}
    for name in names:
        path = Path(name)
        if not path.exists():
            path = _package(name)
        for each in _walk(path, exclude) if path.is_dir() else [path]:
            found.setdefault(each.resolve(), each)
    return list(found.values())


def _walk(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED and not name.startswith(".") and not _is_out(Path(root, name), exclude)
        )
        for name in sorted(files):
            path = Path(root, name)
            if name.endswith((".py", ".pyi")) and not _is_out(path, exclude):
                yield path


def _is_out(path: PurePath, exclude: Sequence[str]) -> bool:
    return any(fnmatch(path.name, pattern) or fnmatch(path.as_posix(), pattern) for pattern in exclude)


def _package(name: str) -> Path:
    """A package or module by its name; the packages around it are not imported for that."""
    where: Sequence[str] | None = [os.getcwd(), *sys.path]  # noqa: PTH109  (as entries of the path are)
    spec = None
    full = ""
    for part in name.split(".") if all(part.isidentifier() for part in name.split(".")) else ():
        full = f"{full}.{part}" if full else part
        spec = PathFinder.find_spec(full, where)
        if spec is None:
            break
        where = list(spec.submodule_search_locations or ())
    if spec is not None and where:
        return Path(where[0])
    if spec is not None and spec.origin is not None:
        return Path(spec.origin)
    raise NoSuchCodeError(f"{name!r} is no file, no folder, and no package that this Python can find")


class Checker:
    """Checks files.

    Args:
        paths: All files; base classes of workflows are looked for in them too.
        named: Names of those that somebody asked for one by one: they are parsed whatever they hold.
    """

    def __init__(self, paths: Sequence[Path], named: Iterable[str] = ()) -> None:
        self._paths = paths
        self._named = {Path(name).resolve() for name in named}
        self._modules: dict[str, Path] | None = None
        self._parsed: dict[Path, SourceFile | None] = {}

    def check(self) -> Checked:
        """Check all of them."""
        done = Checked(files=len(self._paths))
        found: set[Finding] = set()
        for path in self._paths:
            try:
                data = path.read_bytes()
                if _TELLTALE in data or path.resolve() in self._named:
                    file = self._parsed[path.resolve()] = parse(data, str(path))
                    found |= self._workflows(file, path, done)
            except (OSError, SyntaxError, ValueError, RecursionError) as error:
                self._parsed[path.resolve()] = None
                done.unreadable[str(path)] = why(error)
        done.findings = sorted(found)
        return done

    def check_text(self, data: bytes, name: str) -> Checked:
        """Check one text, as if it were the file of this name."""
        done = Checked(files=1)
        try:
            done.findings = sorted(self._workflows(parse(data, name), Path(name), done))
        except (SyntaxError, ValueError, RecursionError) as error:
            done.unreadable[name] = why(error)
        return done

    def _workflows(self, file: SourceFile, path: Path, done: Checked) -> set[Finding]:
        found: set[Finding] = set()
        for node, scope in file.classes:
            if is_workflow(node, scope):
                done.workflows += 1
                found |= set(file.check(node, scope))
                for base_file, base in self._bases(file, path, Class(node, scope)):
                    found |= set(base_file.check(base.node, base.scope))
        return found

    def _bases(self, file: SourceFile, path: Path, cls: Class) -> Iterator[tuple[SourceFile, Class]]:
        """The classes above one, also those of other files."""
        rest = [(file, path, cls)]
        seen = {id(cls.node)}
        while rest and len(seen) < _BASES:
            file, path, cls = rest.pop()
            for node in cls.node.bases:
                target = target_of(node, cls.scope)
                found: tuple[SourceFile, Path, Class] | None = None
                if isinstance(target, Class):
                    found = file, path, target
                elif isinstance(target, str):
                    found = self._class_elsewhere(target, path)
                if found is not None and id(found[2].node) not in seen:
                    seen.add(id(found[2].node))
                    rest.append(found)
                    yield found[0], found[2]

    def _class_elsewhere(self, dotted: str, path: Path) -> tuple[SourceFile, Path, Class] | None:
        module, _, name = _absolute(dotted, path).rpartition(".")
        there = self._find(module)
        file = None if there is None else self._file(there)
        if file is None or there is None:
            return None
        found, scope = file.scope.find(name)
        if isinstance(found, str) and isinstance(scope, Scope) and "." in found:  # the package hands it on
            return self._class_elsewhere(found, there) if found != dotted else None
        for node, where in file.classes:
            if node is found:
                return file, there, Class(node, where)
        return None

    def _find(self, module: str) -> Path | None:
        if self._modules is None:
            self._modules = {module_name(path): path for path in self._paths}
        return self._modules.get(module)

    def _file(self, path: Path) -> SourceFile | None:
        key = path.resolve()
        if key not in self._parsed:
            self._parsed[key] = None
            try:
                self._parsed[key] = parse(path.read_bytes(), str(path))
            except (OSError, SyntaxError, ValueError, RecursionError):
                return None  # it is named where it is checked itself
        return self._parsed[key]


def parse(data: bytes, path: str) -> SourceFile:
    """Parse the bytes of a file, in the encoding that it states.

    Raises:
        SyntaxError: It is no Python.
        ValueError: It is no text.
        RecursionError: It is nested too deeply.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    return SourceFile(text, path)


def why(error: Exception) -> str:
    """Why a file could not be checked."""
    if isinstance(error, SyntaxError):
        return (
            f"line {error.lineno}: it is no Python: {error.msg}"
            if error.lineno
            else f"it is no Python: {error.msg}"
        )
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror}"
    return f"it cannot be read: {type(error).__name__}: {error}"


def module_name(path: Path) -> str:
    """The name that import has for a file."""
    path = path.resolve()
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _absolute(dotted: str, path: Path) -> str:
    """A name with points in front, as import means it in a file."""
    level = len(dotted) - len(dotted.lstrip("."))
    if not level:
        return dotted
    rest = dotted[level:]
    if "." not in rest:
        level -= 1  # ``from . import name`` has one point more in the names of scopes
    package = module_name(path).split(".")
    up = level if path.stem != "__init__" else level - 1
    return ".".join([*package[: len(package) - up], rest])
