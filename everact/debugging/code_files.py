"""The user's code for a replay: workflows, activities and interceptors from files and modules that are named."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ..actors.definitions import DEFINITION, ActivityDefinition, WorkflowDefinition
from ..actors.dynamic import WithDynamic
from ..actors.interceptors import Interceptor
from ..journal.payloads import PayloadConverter
from .loading import CodeNotFoundError, not_importable, only_importing

_STDLIB = frozenset(sys.stdlib_module_names)
_PACKAGE = __name__.partition(".")[0]

__all__ = ["Code", "CodeNotFoundError", "load_code", "module_of"]

D = TypeVar("D", WorkflowDefinition, ActivityDefinition)


class Code:
    """What a replay runs.

    Attributes:
        workflows: By type name.
        activities: By name.
        interceptors: Around them.
        converter: Of stored values.
    """

    def __init__(
        self,
        workflows: Mapping[str, WorkflowDefinition],
        activities: Mapping[str, ActivityDefinition],
        interceptors: Sequence[Interceptor] = (),
        converter: PayloadConverter | None = None,
    ) -> None:
        self.workflows = workflows
        self.activities = activities
        self.interceptors = interceptors
        self.converter = converter or PayloadConverter()


def load_code(
    files: Iterable[Path] = (),
    names: Iterable[str] = (),
    interceptors: Iterable[str] = (),
    converters: Iterable[str] = (),
    *,
    trust_pickle: bool = False,
) -> Code:
    """Import code.

    Args:
        files: Python files; all workflows and activities in them, and in what they import, are known.
        names: ``module`` or ``module:Class``. A class that is named counts before all others.
        interceptors: ``module:NAME`` of objects or classes.
        converters: Likewise, of converters of values.
        trust_pickle: As of ``Runtime``.

    Raises:
        CodeNotFoundError: Something cannot be loaded, or two have one name.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    modules = [module_of(path) for path in files]
    named: list[Any] = []
    for name in names:
        module, _, attributes = name.partition(":")
        modules.append(_module(module, name))
        named += [_attribute(modules[-1], one, name) for one in attributes.split(",") if one]
    around = [_made(_object(name)) for name in interceptors]
    if strange := [one for one in around if not isinstance(one, Interceptor)]:
        raise CodeNotFoundError(f"--interceptor: {strange[0]!r} is no interceptor")
    converter = PayloadConverter(
        trust_pickle=trust_pickle, converters=[_made(_object(name)) for name in converters]
    )
    # Theirs first, then those of all else that was imported: a workflow may call what another file holds.
    others = [module for name, module in list(sys.modules.items()) if _may_hold(name)]
    theirs, rest = list(_values(modules)), list(_values(others))
    return Code(
        _by_name([named, theirs], rest, WorkflowDefinition),
        _by_name([named, theirs], rest, ActivityDefinition),
        around,
        converter,
    )


def _may_hold(name: str) -> bool:
    top = name.partition(".")[0]
    return top not in _STDLIB and top != _PACKAGE


def _module(name: str, said: str) -> ModuleType:
    try:
        with only_importing(repr(said)):
            return importlib.import_module(name)
    except CodeNotFoundError:
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise not_importable(repr(said), error) from error
        raise CodeNotFoundError(
            f"there is no module {missing!r} ({said!r}): name it as import does, from the folder that the program "
            f"is started in, or give a file with --module"
        ) from error


def _object(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not attribute:
        raise CodeNotFoundError(f"{name!r} names no object: write module:NAME")
    return _attribute(_module(module, name), attribute, name)


def _attribute(module: ModuleType, attribute: str, said: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CodeNotFoundError(f"{module.__name__} has no {attribute!r} ({said!r})") from None
    return found


def _made(found: Any) -> Any:
    return found() if isinstance(found, type) else found


def module_of(path: Path) -> ModuleType:
    """Import a file by the name that its package gives it, so that its relative imports work.

    Raises:
        CodeNotFoundError: There is no such file, or importing it fails or starts a program.
    """
    if not path.is_file():
        raise CodeNotFoundError(f"there is no file {str(path)!r}: --module takes the path of a Python file")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    name = ".".join(parts).removesuffix(".__init__")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if len(parts) > 1:
        return _module(name, str(path))
    if known is not None or parts[0] in _STDLIB:
        name = f"{name}_of_the_run"  # another module has its name already
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CodeNotFoundError(f"{str(path)!r} is no Python file: its name must end in .py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with only_importing(repr(path.name)):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception) or isinstance(error, CodeNotFoundError):
            raise
        raise not_importable(repr(path.name), error) from error
    return module


def _values(modules: Iterable[ModuleType]) -> Iterator[Any]:
    """What modules hold, and what their classes hold: activities may be methods."""
    for module in modules:
        for value in list(vars(module).values()):
            yield value
            if isinstance(value, type):
                yield from list(vars(value).values())


def _by_name(groups: Iterable[Iterable[Any]], rest: Iterable[Any], kind: type[D]) -> Mapping[str, D]:
    """Definitions by name; those of an earlier group count. Of ``rest``, names that several have are left out."""
    known: dict[str, D] = {}
    for group in groups:
        found, twice = _named(group, kind, known)
        for name, (one, other) in twice.items():
            raise CodeNotFoundError(
                f"two have the name {name!r}: {_place(one)} and {_place(other)}; name the one that is meant with "
                f"--workflows module:NAME"
            )
        known |= found
    found, twice = _named(rest, kind, known)
    known |= {name: definition for name, definition in found.items() if name and name not in twice}
    dynamic = known.pop("", None)
    return known if dynamic is None else WithDynamic(known, dynamic)


def _named(
    values: Iterable[Any], kind: type[D], known: Container[str]
) -> tuple[dict[str, D], dict[str, tuple[D, D]]]:
    """The definitions among values, and those names that two have."""
    found: dict[str, D] = {}
    twice: dict[str, tuple[D, D]] = {}
    for value in values:
        definition = _definition_of(value)
        if isinstance(definition, kind) and definition.name not in known:
            other = found.setdefault(definition.name, definition)
            if other is not definition:
                twice[definition.name] = other, definition
    return found, twice


def _definition_of(value: Any) -> Any:
    try:
        return inspect.getattr_static(value, "__dict__", {}) and vars(value).get(DEFINITION)
    except Exception:  # noqa: BLE001  (an odd object of some module: it is no definition)
        return None


def _place(definition: WorkflowDefinition | ActivityDefinition) -> str:
    source: Any = definition.cls if isinstance(definition, WorkflowDefinition) else definition.fn
    return f"{source.__module__}.{source.__qualname__}"
