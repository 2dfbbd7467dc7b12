"""The walk of the static check through one source file: from a class's methods to all that they lead to in it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from .determinism_rules import (
    AWAITED,
    CALLS,
    CALLS_WITHOUT_ARGUMENTS,
    METHODS,
    MODULE_STATE,
    PATH_METHODS,
    SET_ORDER,
    UNAWAITED,
    VALUES,
    Rule,
)
from .source_names import (
    Callee,
    Class,
    Function,
    Scope,
    Selfish,
    Unknown,
    bound_names,
    dotted,
    scope_of,
    target_of,
)
from .turn_guard import allows


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place in a workflow's source.

    Attributes:
        path: Its file.
        line: From 1.
        column: From 1, in characters.
        code: The rule, as ``EV101``.
        severity: ``error`` is wrong in any workflow; ``warning`` unless the author knows better; ``hint`` is worth
            a look.
        call: What was found, as ``time.time()``.
        message: What is wrong with it.
        fix: What to do instead.
    """

    path: str
    line: int
    column: int
    code: str
    severity: str
    call: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.code} {self.text}"

    @property
    def text(self) -> str:
        """All but the place."""
        return f"{self.call} in workflow code: {self.message}; {self.fix}"


class SourceFile:
    """One source file."""

    def __init__(self, source: str, path: str) -> None:
        self.path = path
        # As Python counts them: splitlines() also splits at form feeds.
        self.lines = source.split("\n")
        self.tree = ast.parse(source)
        self.scope = scope_of(self.tree, None)
        self.knows_paths = any(
            isinstance(name, str) and name.partition(".")[0] == "pathlib"
            for name in self.scope.names.values()
        )
        self.allowed = {
            number: codes
            for number, line in enumerate(self.lines, 1)
            if "everact" in line and (codes := allows(line)) is not None
        }

    @functools.cached_property
    def classes(self) -> list[tuple[ast.ClassDef, Scope]]:
        """All classes with the scope they are made in, the innermost first."""
        return list(_classes(self.tree, self.scope))

    def check(self, cls: ast.ClassDef, scope: Scope) -> Iterator[Finding]:
        """Look at all methods of a class and at what they lead to in this file."""
        owner = Class(cls, scope)
        callees = [Callee(node, scope, owner) for node in cls.body if isinstance(node, Function)]
        seen: set[ast.AST] = set()
        while callees:
            callee = callees.pop()
            if callee.node in seen or _is_activity(callee):
                continue
            seen.add(callee.node)
            walk = _Walk(self, callee)
            walk.run()
            yield from walk.found
            callees += walk.further


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    return (
        child
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
    )


def _classes(within: ast.AST, scope: Scope) -> Iterator[tuple[ast.ClassDef, Scope]]:
    for node in _statements(within):
        if isinstance(node, Function):
            if _holds_class(node):
                yield from _classes(node, scope_of(node, scope))
        else:
            yield from _classes(node, scope)
            if isinstance(node, ast.ClassDef):
                yield node, scope


def _holds_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) or any(map(_holds_class, _statements(node)))


def _decorators(node: Function | ast.ClassDef, scope: Scope) -> Iterator[str]:
    for each in node.decorator_list:
        # Its value, as of ``task`` in ``task = activity.defn(...)``.
        value = (scope.single_value(each.id) if isinstance(each, ast.Name) else None) or each
        yield dotted(value.func if isinstance(value, ast.Call) else value, scope) or ""


def is_workflow(node: ast.ClassDef, scope: Scope) -> bool:
    """Whether a class bears one of Everact's decorators."""
    return any(
        name.startswith("everact.") and name.endswith((".workflow.defn", ".entity.defn"))
        for name in _decorators(node, scope)
    )


def _is_activity(callee: Callee) -> bool:
    return any(name.endswith("activity.defn") for name in _decorators(callee.node, callee.scope))


def _is_coroutine_function(callee: Callee) -> bool:
    """Whether a call makes a coroutine or a step, as far as the file shows: other decorators make what they like."""
    return (
        isinstance(callee.node, ast.AsyncFunctionDef)
        and all(name.startswith("everact.") for name in _decorators(callee.node, callee.scope))
        and not any(isinstance(each, ast.Yield) for each in ast.walk(callee.node))
    )


class _Walk(ast.NodeVisitor):
    """Looks at one function, the functions and lambdas inside it included."""

    def __init__(self, file: SourceFile, callee: Callee) -> None:
        self.file = file
        self.node = callee.node
        self.found: list[Finding] = []
        self.further: list[Callee] = []
        self.scope = scope_of(callee.node, callee.scope)
        parameters = bound_names(callee.node)
        if (
            callee.owner is not None
            and parameters
            and "staticmethod" not in _decorators(callee.node, callee.scope)
        ):
            self.scope.names[parameters[0]] = Selfish(callee.owner)
        self.once = {
            argument.id
            for node in ast.walk(callee.node)
            if isinstance(node, ast.Call)
            for argument in node.args
            if isinstance(argument, ast.Name) and self.is_side_effect(target_of(node.func, self.scope))
        }
        self.globals = {
            name for node in ast.walk(callee.node) if isinstance(node, ast.Global) for name in node.names
        }

    def run(self) -> None:
        """Look at the body."""
        for statement in self.node.body:
            self.visit(statement)

    @staticmethod
    def is_side_effect(target: object) -> bool:
        """Whether a call is ``workflow.side_effect``, whose function replay does not call again."""
        return (
            isinstance(target, str)
            and target.startswith("everact.")
            and target.endswith("workflow.side_effect")
        )

    def report(self, node: ast.expr | ast.stmt, rule: Rule, call: str) -> None:
        """Note a finding, unless the comment is on one of its lines."""
        line, start = node.lineno, node.col_offset
        last = node.end_lineno or line
        if isinstance(node, ast.Call) and (node.func.end_lineno or line) > line:
            # A call is at the line of its method's name, as in a trace.
            line, start = node.func.end_lineno or line, node.func.end_col_offset or 0
            if isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                start -= len(name.encode())
        allowed = self.file.allowed
        if not any(
            number in allowed and (not allowed[number] or rule.code in allowed[number])
            for number in range(line, last + 1)
        ):
            column = len(self.file.lines[line - 1].encode()[:start].decode()) + 1
            place = (self.file.path, line, column)
            self.found.append(Finding(*place, rule.code, rule.severity, call, rule.why, rule.advice))

    # functions and classes inside

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name not in self.once:
            self.further.append(Callee(node, self.scope, None))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        pass  # looked at when it is called

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer, self.scope = self.scope, Scope(self.scope, dict.fromkeys(bound_names(node), Unknown))
        self.visit(node.body)
        self.scope = outer

    # calls and values

    def visit_Call(self, node: ast.Call) -> None:
        target = target_of(node.func, self.scope)
        if self.is_side_effect(target):
            return
        name = target if isinstance(target, str) else ""
        rule = CALLS.get(name)
        if rule is None and not node.args and not node.keywords:
            rule = CALLS_WITHOUT_ARGUMENTS.get(name)
        if target is None and isinstance(node.func, ast.Attribute):
            name = f".{node.func.attr}"
            rule = METHODS.get(node.func.attr) or (
                PATH_METHODS.get(node.func.attr) if self.file.knows_paths else None
            )
        if rule is not None:
            self.report(node, rule, f"{name}()")
        elif isinstance(target, Class):
            self.further += [
                Callee(each, target.scope, target)
                for each in target.node.body
                if isinstance(each, Function) and each.name in ("__init__", "__new__", "__post_init__")
            ]
        elif name in ("list", "tuple", "enumerate", "iter") and node.args and self.is_set(node.args[0]):
            self.report(node, SET_ORDER, f"{name}() of a set")
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            self.changes(node.func.value, node)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose value is dropped: it should not be one that only an await makes complete."""
        if isinstance(node.value, ast.Call):
            target = target_of(node.value.func, self.scope)
            if isinstance(target, Callee) and _is_coroutine_function(target):
                self.report(node.value, UNAWAITED, f"{target.node.name}() without await")
            elif isinstance(target, str) and target in AWAITED:
                self.report(node.value, AWAITED[target], f"{target.removeprefix('everact.')}() without await")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.value(node)
        elif node.id in self.globals:
            self.report(node, MODULE_STATE, f"setting the global {node.id}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self.value(node):
            self.generic_visit(node)

    def value(self, node: ast.Name | ast.Attribute) -> bool:
        """A name that is read: follow a function, report what may not even be looked at."""
        target = target_of(node, self.scope)
        if isinstance(target, Callee):
            self.further.append(target)
        elif isinstance(target, str) and target in VALUES:
            self.report(node, VALUES[target], target)
            return True
        return False

    # state of the module

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self.changes(node.value, node)
        self.generic_visit(node)

    def changes(self, changed: ast.expr, node: ast.expr) -> None:
        """Report a change of a list, dict or set that the module made."""
        if isinstance(changed, ast.Name) and self.scope.is_module_container(changed.id):
            self.report(node, MODULE_STATE, f"changing {changed.id}")

    # order of sets

    def visit_For(self, node: ast.For) -> None:
        acts = any(isinstance(each, ast.Await | ast.AsyncWith | ast.AsyncFor) for each in ast.walk(node))
        if acts and self.is_set(node.iter):
            self.report(node.iter, SET_ORDER, "awaiting in a loop over a set")
        self.generic_visit(node)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        acts = any(isinstance(each, ast.Await | ast.Call) for each in ast.walk(node.elt))
        if acts and self.is_set(node.generators[0].iter):
            self.report(node.generators[0].iter, SET_ORDER, "calls for each item of a set")
        self.generic_visit(node)

    visit_ListComp = comprehension  # noqa: N815
    visit_GeneratorExp = comprehension  # noqa: N815

    def is_set(self, node: ast.expr) -> bool:
        """Whether an expression is surely a set of what is no number."""
        if isinstance(node, ast.Name):
            value = self.scope.single_value(node.id)
            return value is not None and not isinstance(value, ast.Name) and self.is_set(value)
        if isinstance(node, ast.Set):
            return not all(
                isinstance(e, ast.Constant) and isinstance(e.value, int | float) for e in node.elts
            )
        if isinstance(node, ast.SetComp):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            return self.is_set(node.left) or self.is_set(node.right)
        if isinstance(node, ast.Call):
            name = target_of(node.func, self.scope)
            return name in ("set", "frozenset") and not (node.args and self.is_range(node.args[0]))
        return False

    def is_range(self, node: ast.expr) -> bool:
        """Whether it is ``range(...)``: numbers keep their order in a set."""
        return isinstance(node, ast.Call) and dotted(node.func, self.scope) == "range"


_CHANGES = frozenset(
    [
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "clear",
        "add",
        "discard",
        "update",
        "setdefault",
        "popitem",
        "appendleft",
        "popleft",
        "extendleft",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
    ]
)
