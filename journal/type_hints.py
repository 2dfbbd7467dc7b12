"""The signature of a callable and the hints of a class, resolved once.

Hints are read at run time: they decide how arguments and results are stored. A name that cannot
be resolved never makes a registration fail; its hint is ``Any`` and the name is recorded.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

_SELF: Any = typing.Self
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclasses.dataclass(frozen=True, slots=True)
class CallHints:
    """What a callable takes and returns.

    Attributes:
        name: The callable's name, for messages.
        names: Positional parameters in order, without ``*args``.
        hints: One resolved hint for each of ``names``; ``Any`` where there is none.
        returns: The hint of the result; ``Any`` where there is none.
        required: How many of ``names`` have no default.
        defaults: The defaults of the last ``len(names) - required`` parameters.
        positional_only: How many of ``names`` cannot be given by keyword.
        var_args: Hint of one item of ``*args``, or None without ``*args``.
        keywords: Keyword-only parameters and their hints.
        required_keywords: The keyword-only parameters without a default.
        var_keywords: Hint of one value of ``**kwargs``, or None without ``**kwargs``.
        unresolved: Parameters (or ``"return"``) whose hint names something that cannot be found.
        unresolved_texts: The annotation of each of them, as it was written.
        known: False when the callable shows no signature; it then accepts anything.
    """

    name: str
    names: tuple[str, ...] = ()
    hints: tuple[Any, ...] = ()
    returns: Any = Any
    required: int = 0
    defaults: tuple[Any, ...] = ()
    positional_only: int = 0
    var_args: Any = None
    keywords: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    required_keywords: tuple[str, ...] = ()
    var_keywords: Any = None
    unresolved: tuple[str, ...] = ()
    unresolved_texts: tuple[str, ...] = ()
    known: bool = True

    @property
    def maximum(self) -> int | None:
        """How many positional arguments it takes at most; None with ``*args``."""
        return len(self.names) if self.var_args is None else None

    def hint_at(self, position: int) -> Any:
        """The hint of a positional argument; ``Any`` past the last one that is known."""
        if position < len(self.hints):
            return self.hints[position]
        return Any if self.var_args is None else self.var_args

    def hint_of(self, keyword: str) -> Any:
        """The hint of an argument that is given by its name; ``Any`` for an unknown one."""
        if keyword in self.keywords:
            return self.keywords[keyword]
        if keyword in self.names:
            return self.hints[self.names.index(keyword)]
        return Any if self.var_keywords is None else self.var_keywords

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Check the arguments of a call and put those given by name in their place.

        Args:
            args: Positional arguments of the call.
            kwargs: Keyword arguments of the call.

        Returns:
            The positional arguments, with keywords moved into their position, and the keywords that
            stay: keyword-only ones, those for ``**kwargs``, and those after a gap (a parameter left
            to its default).

        Raises:
            TypeError: The call does not fit; the message names the callable and what it takes.
        """
        count = len(args)
        if not kwargs and not self.required_keywords and self.required <= count <= len(self.names):
            return tuple(args), {}
        if not self.known:
            return tuple(args), dict(kwargs or {})
        if count > len(self.names) and self.var_args is None:
            raise TypeError(f"{self.name}() takes {self._takes()}, {count} {_were(count)} given")
        rest = dict(kwargs or {})
        positional = self.names[self.positional_only :]
        for name in rest:
            if name in self.names[:count] and name in positional:
                raise TypeError(f"{self.name}() got two values for argument {name!r}")
            if name not in positional and name not in self.keywords and self.var_keywords is None:
                raise TypeError(f"{self.name}() has no argument {name!r}; it takes {self._takes()}")
        for name in self.names[count : self.required]:
            if name not in rest or name not in positional:
                raise TypeError(f"{self.name}() is missing argument {name!r}; it takes {self._takes()}")
        for name in self.required_keywords:
            if name not in rest:
                raise TypeError(f"{self.name}() is missing keyword argument {name!r}")
        bound = list(args)
        for name in self.names[count:]:
            if name not in rest or name not in positional:
                break
            bound.append(rest.pop(name))
        return tuple(bound), rest

    def _takes(self) -> str:
        shown = list(self.names[: self.required])
        shown += [
            f"{name}={_short(default)}"
            for name, default in zip(self.names[self.required :], self.defaults, strict=False)
        ]
        if self.var_args is not None:
            shown.append("*args")
        elif self.keywords:
            shown.append("*")
        shown += list(self.keywords)
        if self.var_keywords is not None:
            shown.append("**kwargs")
        listed = f" ({', '.join(shown)})" if shown else ""
        least, most = self.required, len(self.names)
        if self.var_args is not None:
            return f"at least {least} argument{'' if least == 1 else 's'}{listed}"
        if least == most:
            number = "no" if most == 0 else str(most)
            return f"{number} argument{'' if most == 1 else 's'}{listed}"
        return f"{least} to {most} arguments{listed}"


def hints_of(
    fn: Callable[..., Any], skip_first: bool = False, local: Mapping[str, Any] | None = None
) -> CallHints:
    """Resolve a callable's signature.

    A hint ``X`` with the default ``None`` means ``X | None``, as callers mean it.

    Args:
        fn: A function, method, class, ``functools.partial`` or callable object. What
            ``functools.wraps`` put around a function is looked through.
        skip_first: Leave out the first positional parameter (``self`` of an unbound method).
        local: Names that annotations may use besides those of the module, such as ``enclosing_names``.

    Returns:
        Its parameters and hints; ``known`` is False when it shows no signature.
    """
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__name__
    name = str(name).rpartition("<locals>.")[2]
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return CallHints(name, var_args=Any, var_keywords=Any, known=False)
    resolve = _Resolver(fn, local or {})
    names: list[str] = []
    hints: list[Any] = []
    defaults: list[Any] = []
    keywords: dict[str, Any] = {}
    required_keywords: list[str] = []
    positional_only = 0
    var_args: Any = None
    var_keywords: Any = None
    skip = skip_first
    for parameter in signature.parameters.values():
        if skip and parameter.kind in _POSITIONAL:
            skip = False
            continue
        hint = resolve(parameter.name, parameter.annotation, parameter.default)
        if parameter.kind in _POSITIONAL:
            names.append(parameter.name)
            hints.append(hint)
            positional_only += parameter.kind is inspect.Parameter.POSITIONAL_ONLY
            if parameter.default is not inspect.Parameter.empty:
                defaults.append(parameter.default)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            var_args = hint
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            var_keywords = hint
        else:
            keywords[parameter.name] = hint
            if parameter.default is inspect.Parameter.empty:
                required_keywords.append(parameter.name)
    returns = resolve("return", signature.return_annotation, inspect.Parameter.empty)
    return CallHints(
        name=name,
        names=tuple(names),
        hints=tuple(hints),
        returns=returns,
        required=len(names) - len(defaults),
        defaults=tuple(defaults),
        positional_only=positional_only,
        var_args=var_args,
        keywords=keywords,
        required_keywords=tuple(required_keywords),
        var_keywords=var_keywords,
        unresolved=tuple(resolve.unresolved),
        unresolved_texts=tuple(resolve.unresolved.values()),
    )


def enclosing_names(fn: Callable[..., Any], cls: type | None = None) -> dict[str, Any]:
    """The names that annotations of a function may use in the functions and classes around its definition.

    To be called while those still run: by a decorator of the function, or of its class.

    Args:
        fn: The function.
        cls: Its class, when the class body has ended.
    """
    scopes: list[Mapping[str, Any]] = []
    if cls is not None:
        scopes.append({**_nested_types(vars(cls)), cls.__name__: cls})
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and "." in fn.__qualname__:
        if fn.__qualname__.startswith(frame.f_code.co_qualname + "."):
            names = frame.f_locals
            scopes.append(_nested_types(names) if "__qualname__" in names else names)
        frame = frame.f_back
    found: dict[str, Any] = {}
    for scope in reversed(scopes):
        found.update(scope)
    return found


def _nested_types(body: Mapping[str, Any]) -> dict[str, Any]:
    """What annotations can mean of a class's own names: a method or a field may have the name of a type."""
    return {name: value for name, value in body.items() if isinstance(value, type) or get_origin(value)}


def class_hints(cls: type, names: Sequence[str], args: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Resolve the hints of a class's fields, inherited ones included.

    Each class of the hierarchy is read in its own module, and its type variables are replaced by
    what the classes below gave for them.

    Args:
        cls: The class.
        names: The fields wanted; other annotations are not evaluated.
        args: What a generic class was subscripted with: ``(int,)`` for ``Box[int]``.

    Returns:
        A hint for every name; ``Any`` where there is none or it cannot be resolved.
    """
    variables = _type_variables(cls, args)
    hints: dict[str, Any] = dict.fromkeys(names, Any)
    for base in reversed(cls.__mro__):
        annotations = inspect.get_annotations(base)
        module, local = _names_around(base, cls)
        for name in names:
            if name in annotations:
                hint, _ = evaluate(annotations[name], module, local)
                hints[name] = _with_self(substitute(hint, variables.get(base, {})), cls)
    return hints


def unresolved_field(cls: type, name: str) -> str | None:
    """The annotation of a class's field as it was written if it cannot be resolved, else None; for messages."""
    for base in cls.__mro__:
        annotations = inspect.get_annotations(base)
        if name in annotations:
            annotation = annotations[name]
            _, found = evaluate(annotation, *_names_around(base, cls))
            return None if found else str(annotation)
    return None


def _names_around(base: type, cls: type) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the annotations of ``base``, a base of ``cls``, may name: in its module, and nearer."""
    module = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
    # Of the class's own names only nested classes count: in ``date: date = None`` the field is not meant.
    nested = {name: value for name, value in vars(base).items() if isinstance(value, type)}
    return module, {**nested, base.__name__: base, cls.__name__: cls}


def evaluate(annotation: Any, module: Mapping[str, Any], local: Mapping[str, Any]) -> tuple[Any, bool]:
    """Evaluate one annotation; gives ``(hint, True)``, or ``(Any, False)`` when a name is unknown."""
    if annotation is None:
        return None, True
    # A class carries the annotation because ClassVar, Final and Required are only legal in one.
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        hint = typing.get_type_hints(holder, dict(module), dict(local), include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - evaluating an annotation runs whatever it says
        return Any, False
    return (None if hint is type(None) else hint), True


def substitute(hint: Any, variables: Mapping[Any, Any]) -> Any:
    """Replace type variables in a hint; those without a value stay."""
    if isinstance(hint, typing.TypeVar):
        return variables.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not variables or not parameters or isinstance(hint, type):
        return hint
    try:
        return hint[tuple(variables.get(parameter, parameter) for parameter in parameters)]
    except TypeError:
        return hint


def _with_self(hint: Any, cls: type) -> Any:
    """Replace ``Self`` by the class."""
    if hint is _SELF:
        return cls
    args = get_args(hint)
    changed = tuple(_with_self(arg, cls) for arg in args)
    if all(new is old for new, old in zip(changed, args, strict=True)):
        return hint
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[changed]  # noqa: UP007 - the members are only known here
    try:
        return origin[changed]
    except TypeError:
        return hint


def _type_variables(cls: type, args: tuple[Any, ...]) -> dict[type, dict[Any, Any]]:
    """For each class of the hierarchy, what its type variables stand for."""
    found: dict[type, dict[Any, Any]] = {}

    def visit(klass: type, given: tuple[Any, ...]) -> None:
        parameters = getattr(klass, "__parameters__", ())
        known = dict(zip(parameters, given, strict=False))
        found.setdefault(klass, {}).update(known)
        for base in getattr(klass, "__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type):
                visit(origin, tuple(substitute(arg, known) for arg in get_args(base)))
        for base in klass.__bases__:
            if base is not object and base not in found:
                visit(base, ())

    visit(cls, args)
    return found


class _Resolver:
    """Evaluates the annotations of one callable."""

    def __init__(self, fn: Any, local: Mapping[str, Any]) -> None:
        self.unresolved: dict[str, str] = {}
        target: Any = inspect.getattr_static(fn, "__init__", fn) if isinstance(fn, type) else fn
        while hasattr(target, "func") and not hasattr(target, "__code__"):
            target = target.func
        target = inspect.unwrap(target)
        target = getattr(target, "__func__", target)
        if not hasattr(target, "__globals__"):
            kind = typing.cast("Any", type(target))
            call = getattr(kind, "__call__", None)  # noqa: B004 - the function is wanted
            target = inspect.unwrap(call) if call is not None else target
        self._module: Mapping[str, Any] = getattr(target, "__globals__", {})
        self._local: dict[str, Any] = dict(local)
        # Classes defined inside a function are found when the callable's body mentions them.
        code = getattr(target, "__code__", None)
        for name, cell in zip(getattr(code, "co_freevars", ()), target_cells(target), strict=False):
            try:
                self._local[name] = cell.cell_contents
            except ValueError:
                continue

    def __call__(self, name: str, annotation: Any, default: Any) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any
        hint, found = evaluate(annotation, self._module, self._local)
        if not found:
            self.unresolved[name] = annotation if isinstance(annotation, str) else repr(annotation)
        if default is None and hint is not Any and hint is not None:
            try:
                return hint | None
            except TypeError:
                return typing.Optional[hint]  # noqa: UP045 - not every hint has the operator
        return hint


def target_cells(target: Any) -> tuple[Any, ...]:
    """The closure of a function, empty for anything else."""
    cells: tuple[Any, ...] | None = getattr(target, "__closure__", None)
    return cells or ()


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
