"""What a name means in a source file, as far as the file itself says: imports, functions, classes, aliases."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any, NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Calls whose result is a list, dict or set.
_CONTAINERS = frozenset(
    [
        "list",
        "dict",
        "set",
        "collections.defaultdict",
        "collections.deque",
        "collections.Counter",
        "collections.OrderedDict",
    ]
)
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


class _UnknownName:
    """A name that the file gives a value of its own."""


Unknown = _UnknownName()


class Callee(NamedTuple):
    """A function of the file.

    Attributes:
        node: Its definition.
        scope: Where its names are looked up.
        owner: Its class, when it is a method.
    """

    node: Function
    scope: Scope
    owner: Class | None


class Class(NamedTuple):
    """A class of the file, and the scope that it was made in."""

    node: ast.ClassDef
    scope: Scope


class Selfish(NamedTuple):
    """The first parameter of a method."""

    cls: Class


class Scope:
    """The names of a function or of the module.

    Attributes:
        parent: The scope around it; None for the module.
        names: What each name stands for: a dotted path, a function or class of the file, or Unknown.
        values: The expression of names that are bound exactly once, by a plain assignment.
    """

    def __init__(self, parent: Scope | None, names: dict[str, Any]) -> None:
        self.parent = parent
        self.names = names
        self.values: dict[str, ast.expr] = {}

    @property
    def module(self) -> Scope:
        """The scope of the module."""
        return self if self.parent is None else self.parent.module

    def find(self, name: str) -> tuple[Any, Scope | None]:
        """What a name stands for and where it was bound; builtins are their own name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], scope
            scope = scope.parent
        return name if hasattr(builtins, name) else Unknown, None

    def single_value(self, name: str) -> ast.expr | None:
        """The expression that a name is always bound to, if it is in the function at hand."""
        _, scope = self.find(name)
        return None if scope is None else scope.values.get(name)

    def is_module_container(self, name: str) -> bool:
        """Whether a name is a list, dict or set that the module made."""
        _, scope = self.find(name)
        if scope is None or scope.parent is not None:
            return False
        value = scope.values.get(name)
        return isinstance(value, _DISPLAYS) or (
            isinstance(value, ast.Call) and dotted(value.func, scope) in _CONTAINERS
        )


def bound_names(node: Any) -> list[str]:
    """The parameters of a function or lambda."""
    arguments = node.args
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    return [one.arg for one in every if one is not None]


def scope_of(node: Any, parent: Scope | None) -> Scope:
    """The scope that a module or function makes; it is not looked into functions and classes inside."""
    scope = Scope(parent, {})
    if isinstance(node, Function):
        scope.names.update(dict.fromkeys(bound_names(node), Unknown))
    foreign: set[str] = set()
    bound: dict[str, int] = {}
    assigned: list[tuple[str, ast.expr]] = []
    for each in _own_nodes(node.body):
        match each:
            case ast.Import():
                for alias in each.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    scope.names[name] = alias.name if alias.asname else name
            case ast.ImportFrom():
                for alias in each.names:
                    start = "." * each.level + (each.module or "")
                    if alias.name == "*" and start == "everact":
                        scope.names |= {"activity": "everact.activity", "workflow": "everact.workflow"}
                    scope.names[alias.asname or alias.name] = f"{start}.{alias.name}"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope.names[each.name] = each
            case ast.Name(ctx=ast.Store() | ast.Del()):
                bound[each.id] = bound.get(each.id, 0) + 1
            case ast.ExceptHandler(name=str(name)):
                bound[name] = 2
            case ast.Global() | ast.Nonlocal():
                foreign.update(each.names)
            case _:
                pass
        if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
            assigned.append((each.targets[0].id, each.value))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None:
            assigned.append((each.target.id, each.value))
    for name in bound.keys() - foreign:
        scope.names[name] = Unknown
    for name, value in assigned:
        if bound.get(name) == 1 and name not in foreign:
            scope.values[name] = value
            path = dotted(value, scope)
            if path is not None and path.partition(".")[0] != name:
                scope.names[name] = path  # an alias, as in ``now = time.time``
    return scope


def _own_nodes(body: Any) -> Iterator[ast.AST]:
    rest = list(reversed(body))
    while rest:
        node = rest.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            rest.extend(reversed(list(ast.iter_child_nodes(node))))


def dotted(node: ast.AST, scope: Scope) -> str | None:
    """The dotted path of a name or attribute that leads out of the file; None for anything else."""
    target = target_of(node, scope)
    return target if isinstance(target, str) else None


def target_of(node: ast.AST, scope: Scope) -> str | Callee | Class | Selfish | None:
    """What an expression stands for; a dotted path leads out of the file."""
    if isinstance(node, ast.Name):
        found, where = scope.find(node.id)
        if isinstance(found, Function):
            return Callee(found, where or scope, None)
        if isinstance(found, ast.ClassDef):
            return Class(found, where or scope)
        return None if found is Unknown else found
    if isinstance(node, ast.Attribute):
        base = target_of(node.value, scope)
        if isinstance(base, str):
            return f"{base}.{node.attr}"
        if isinstance(base, Selfish):
            return _method(base.cls, node.attr)
        if isinstance(base, Class):
            return _method(base, node.attr)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return _parent(scope)
    return None


def _parent(scope: Scope | None) -> Class | None:
    """What ``super()`` is: the first base that the file holds."""
    while scope is not None:
        for value in scope.names.values():
            if isinstance(value, Selfish):
                bases = [target_of(base, value.cls.scope) for base in value.cls.node.bases]
                return next((base for base in bases if isinstance(base, Class)), None)
        scope = scope.parent
    return None


def _method(cls: Class, name: str, depth: int = 0) -> Callee | None:
    for node in cls.node.body:
        if isinstance(node, Function) and node.name == name:
            return Callee(node, cls.scope, cls)
    for base in cls.node.bases if depth < 10 else ():
        parent = target_of(base, cls.scope)
        if isinstance(parent, Class):
            found = _method(parent, name, depth + 1)
            if found is not None:
                return found
    return None
