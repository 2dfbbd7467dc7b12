"""What the decorators make of classes and functions: names, handlers, options, and how calls are encoded."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ..journal.payloads import Payload, PayloadConverter
from .call_codec import CallCodec
from .dynamic import DynamicCodec, renamed
from .errors import RegistrationError
from .object_fields import ObjectFields
from .options import DEFAULT_ACTIVITY_OPTIONS, ResolvedActivityOptions, check_text
from .setters import SETTERS, WAITS, names_one_of
from .step_definitions import STEP, StepDefinition

MARK = "__everact_mark__"
DEFINITION = "__everact_definition__"


_TAKES_SELF = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


class Mark:
    """What a decorator leaves on a method.

    Attributes:
        kind: ``run``, ``init``, ``signal``, ``query``, ``update`` or ``step``.
        name: Name of the handler; empty for one that takes all names without a handler of their own.
        validator: For updates, the validating function.
        owners: For run methods, the workflow types whose main it is.
    """

    __slots__ = ("kind", "name", "owners", "validator")

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        self.validator: Callable[..., None] | None = None
        self.owners: list[WorkflowDefinition] = []


def put_mark(fn: Any, kind: str, name: str | None, decorator: str, *, is_dynamic: bool = False) -> Mark:
    """Mark a method, refusing what the decorator does not fit.

    Raises:
        RegistrationError: Not a plain method, already marked, of the wrong colour, or its class body already
            has a handler under this Python name.
    """
    if not inspect.isfunction(fn):
        raise RegistrationError(
            f"@{decorator} goes on a plain method, not on {fn!r}{name_advice(fn, decorator)}"
        )
    check_name(name, decorator)
    if is_dynamic and name is not None:
        raise RegistrationError(
            f"@{decorator}: {fn.__qualname__} has both name={name!r} and dynamic=True; a dynamic handler takes every "
            f"name that has no handler of its own"
        )
    if MARK in fn.__dict__:
        raise RegistrationError(
            f"{fn.__qualname__} is already declared as a {fn.__dict__[MARK].kind}; a method is one of "
            f"run, signal, query, update, step"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise RegistrationError(f"@{decorator}: {fn.__qualname__} is a generator; it must return one value")
    if not any(parameter.kind in _TAKES_SELF for parameter in inspect.signature(fn).parameters.values()):
        raise RegistrationError(f"@{decorator}: {fn.__qualname__} must take self, as any method")
    if DEFINITION in fn.__dict__:
        raise RegistrationError(
            f"@{decorator}: {fn.__qualname__} is an activity, and an activity is no part of a workflow's code: keep "
            f"one of the two decorators"
        )
    if kind in ("run", "step") and not inspect.iscoroutinefunction(fn):
        raise RegistrationError(f"@{decorator}: {fn.__qualname__} must be 'async def'")
    if kind == "query" and inspect.iscoroutinefunction(fn):
        raise RegistrationError(
            f"@{decorator}: {fn.__qualname__} must be a plain 'def': a query answers at once and changes nothing "
            f"(an update may await)"
        )
    _refuse_second_definition(fn, decorator)
    mark = Mark(kind, "" if is_dynamic else name or fn.__name__)
    fn.__dict__[MARK] = mark
    return mark


def check_name(name: object, decorator: str) -> None:
    """Refuse what cannot be the name of anything in the journal.

    Raises:
        RegistrationError: No string, empty, or not valid Unicode.
    """
    if name is None:
        return
    try:
        check_text("it", name)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"@{decorator}(name=...) must be a string that is not empty, not {name!r}"
        ) from error


def name_advice(target: object, decorator: str) -> str:
    """What to add to an error when a decorator got a text: it was meant as the name."""
    return f"; to give a name write @{decorator}(name={target!r})" if isinstance(target, str) else ""


def _refuse_second_definition(fn: Callable[..., Any], decorator: str) -> None:
    """A second method of one name would silently replace the first; look into the class body being made."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(__package__ or ""):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or "__qualname__" not in frame.f_locals:
        return
    earlier = frame.f_locals.get(fn.__name__)
    if earlier is not None and MARK in getattr(earlier, "__dict__", {}):
        raise RegistrationError(
            f"@{decorator}: {fn.__qualname__} is declared twice in its class "
            f"(lines {earlier.__code__.co_firstlineno} and {fn.__code__.co_firstlineno}); the second would "
            f"replace the first"
        )


class Call(Protocol):
    """What a handler is called with: a message, or a query."""

    @property
    def name(self) -> str:
        """Of the handler asked for."""
        ...

    @property
    def args(self) -> tuple[Payload, ...]:
        """Stored."""
        ...


class HandlerDefinition:
    """One signal, query or update of a workflow, by its class or set by a run.

    Attributes:
        kind: ``signal``, ``query`` or ``update``.
        name: Its name; empty for one that takes all names without a handler of their own.
        fn: Called with the user's object and the arguments.
        validator: For updates, called in the same way before.
        codec: Encodes its arguments and its result.
    """

    __slots__ = ("codec", "fn", "is_async", "kind", "name", "validator")

    def __init__(
        self, mark: Mark, fn: Callable[..., Any], workflow: str, cls: type[Any] | None = None
    ) -> None:
        """Check what a decorator has marked, or (without a class) what a run sets."""
        is_method = cls is not None
        self.kind = mark.kind
        self.name = mark.name
        self.fn = fn if is_method else _without_self(fn)
        self.is_async = inspect.iscoroutinefunction(fn)
        label = f"{mark.kind} {workflow}.{mark.name}" if mark.name else f"dynamic {mark.kind} of {workflow}"
        self.codec = CallCodec(fn, label, skip_first=is_method, cls=cls)
        _refuse_keyword_only(self.codec, fn)
        if not mark.name and not (self.codec.required <= 2 <= (self.codec.hints.maximum or 2)):
            raise RegistrationError(
                f"{fn.__qualname__} takes every {mark.kind} without a handler of its own, so it is called with the "
                f"name and the list of arguments: give it these two parameters"
            )
        given = mark.validator
        self.validator = given if given is None or is_method else _without_self(given)
        if given is not None:
            takes = CallCodec(given, mark.name, skip_first=is_method, cls=cls)
            if not takes.accepts_calls_of(self.codec):
                raise RegistrationError(
                    f"validator {given.__qualname__} must take the same parameters as {fn.__name__}: "
                    f"({', '.join(self.codec.names)})"
                )

    def decode_args(self, converter: PayloadConverter, call: Call) -> list[Any]:
        """What the handler is to be called with.

        Raises:
            PayloadDecodeError: A stored value does not fit its hint.
            TypeError: The stored arguments do not fit the signature.
        """
        if not self.name:
            return [call.name, [converter.decode(payload) for payload in call.args]]
        return self.codec.decode_args(converter, call.args)[0]


def own_handler(
    kind: str,
    name: str | None,
    fn: Callable[..., Any],
    validator: Callable[..., None] | None,
    workflow: str,
) -> HandlerDefinition:
    """The handler that a run sets itself; None is for all names.

    Raises:
        RegistrationError: The function does not fit.
    """
    call = f"workflow.set_{kind}_handler"
    if name is not None:
        try:
            check_text("the name", name)
        except (TypeError, ValueError) as error:
            raise RegistrationError(f"{call}: {error}") from error
    for given in (fn, validator):
        if given is not None and not (inspect.isfunction(given) or inspect.ismethod(given)):
            raise RegistrationError(f"{call} needs a function or a bound method, not {given!r}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise RegistrationError(f"{call}: {fn.__qualname__} is a generator; it must return one value")
    plain = [fn] if kind == "query" else [validator]
    for given in plain:
        if given is not None and inspect.iscoroutinefunction(given):
            raise RegistrationError(f"{call}: {given.__qualname__} must be a plain 'def': it decides at once")
    mark = Mark(kind, name or "")
    mark.validator = validator
    return HandlerDefinition(mark, fn, workflow)


def _without_self(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(_object: Any, *args: Any) -> Any:
        return fn(*args)

    return call


def _refuse_keyword_only(codec: CallCodec, fn: Callable[..., Any]) -> None:
    """Arguments of starts and messages are positional."""
    if codec.hints.required_keywords:
        raise RegistrationError(
            f"{fn.__qualname__} has the keyword-only parameter {codec.hints.required_keywords[0]!r} without a "
            f"default, but its arguments come as positional ones: remove the '*', or give it a default"
        )


class WorkflowDefinition:
    """One workflow type.

    Attributes:
        name: How the journal knows it; empty for a dynamic one.
        cls: The user's class.
        run: Its main, unbound.
        codec: Encodes the arguments and the result of ``run``.
        takes_args: ``__init__`` gets the arguments too.
        on_crash: ``quarantine``, or ``fail``.
        retention: How long its runs are kept after their end, microseconds; None is for ever.
        handlers: Declared handlers by kind and name.
        dynamic: By kind, the handler of all names that have none of their own.
        sets_handlers: Its runs may set handlers or wait for signals, so that signals without a handler are kept (R25).
        waits_for_signals: Its runs may wait for signals.
        steps: Its steps by name.
        fields: The fields of its objects.
        warned: What was said already of its steps, once in the life of a process.
    """

    __slots__ = (
        "cls",
        "codec",
        "dynamic",
        "fields",
        "handlers",
        "name",
        "on_crash",
        "retention",
        "run",
        "sets_handlers",
        "steps",
        "takes_args",
        "waits_for_signals",
        "warned",
    )

    def __init__(self, cls: type[Any], name: str, on_crash: str, retention: int | None) -> None:
        self.cls = cls
        self.name = name
        self.on_crash = on_crash
        self.retention = retention
        self.handlers: dict[str, dict[str, HandlerDefinition]] = {"signal": {}, "query": {}, "update": {}}
        self.dynamic: dict[str, HandlerDefinition] = {}
        self.sets_handlers = names_one_of(cls, SETTERS)
        self.waits_for_signals = self.sets_handlers and names_one_of(cls, WAITS)
        self.steps: dict[str, StepDefinition] = {}
        self.fields = ObjectFields(cls)
        self.warned: set[str] = set()
        run: Callable[..., Any] | None = None
        for attribute in dir(cls):
            fn = inspect.getattr_static(cls, attribute, None)
            mark = getattr(fn, "__dict__", {}).get(MARK)
            if not isinstance(mark, Mark):
                if inspect.isfunction(fn):
                    self._refuse_hidden_handler(attribute, fn)
                continue
            assert inspect.isfunction(fn)
            if mark.kind == "run":
                if run is not None:
                    raise RegistrationError(
                        f"workflow class {cls.__qualname__} has two @workflow.run methods: "
                        f"{run.__name__} and {fn.__name__}; it needs exactly one"
                    )
                run = fn
                mark.owners.append(self)
            elif mark.kind == "step":
                self._add_step(fn)
            elif mark.kind != "init":
                self._add_handler(mark, fn)
        if run is None:
            raise RegistrationError(
                f"workflow class {cls.__qualname__} has no run method: put @workflow.run on one 'async def' method"
            )
        self.run = run
        if name:
            self.codec = CallCodec(run, f"workflow {name}", skip_first=True, cls=cls)
        else:
            self.codec = DynamicCodec(
                run, f"the dynamic workflow {cls.__qualname__}", skip_first=True, cls=cls
            )
        _refuse_keyword_only(self.codec, run)
        init_mark = getattr(cls.__init__, "__dict__", {}).get(MARK)
        self.takes_args = init_mark is not None
        if self.takes_args and not self.codec.same_parameters(CallCodec(cls.__init__, name, skip_first=True)):
            raise RegistrationError(
                f"@workflow.init: {cls.__qualname__}.__init__ must take the same parameters as "
                f"{run.__name__}: ({', '.join(self.codec.hints.names)})"
            )
        if not self.takes_args:
            self._check_plain_init()

    def named(self, name: str) -> WorkflowDefinition:
        """A dynamic one for runs of this type."""
        assert isinstance(self.codec, DynamicCodec)
        return renamed(self, name, self.codec.named(name, f"workflow {name}"))

    def _check_plain_init(self) -> None:
        if self.cls.__init__ is object.__init__:
            return
        codec = CallCodec(self.cls.__init__, self.name, skip_first=True)
        if codec.required or codec.hints.required_keywords:
            names = (*codec.names, *codec.hints.keywords)
            raise RegistrationError(
                f"{self.cls.__qualname__}.__init__ has parameters ({', '.join(names)}), but it is called "
                f"without arguments: give it @workflow.init to get run's arguments, or take them in run"
            )

    def _refuse_hidden_handler(self, attribute: str, fn: Callable[..., Any]) -> None:
        for base in self.cls.__mro__:
            mark = getattr(base.__dict__.get(attribute), "__dict__", {}).get(MARK)
            if isinstance(mark, Mark):
                raise RegistrationError(
                    f"{fn.__qualname__} hides the {mark.kind} {base.__qualname__}.{attribute}, which it overrides, "
                    f"and lacks a decorator of its own: put @workflow.{mark.kind} on it"
                )

    def _add_step(self, fn: Callable[..., Any]) -> None:
        step: StepDefinition = fn.__dict__[STEP]
        step.bind(self.cls)
        if step.name in self.steps:
            raise RegistrationError(
                f"workflow class {self.cls.__qualname__} has two steps named {step.name!r}: "
                f"{self.steps[step.name].fn.__name__} and {fn.__name__}"
            )
        self.steps[step.name] = step

    def _add_handler(self, mark: Mark, fn: Callable[..., Any]) -> None:
        if not mark.name:
            if mark.kind in self.dynamic:
                raise RegistrationError(
                    f"workflow class {self.cls.__qualname__} has two dynamic {mark.kind} handlers: "
                    f"{self.dynamic[mark.kind].fn.__name__} and {fn.__name__}"
                )
            self.dynamic[mark.kind] = HandlerDefinition(mark, fn, self.name, self.cls)
            return
        same_kind = self.handlers[mark.kind]
        if mark.name in same_kind:
            raise RegistrationError(
                f"workflow class {self.cls.__qualname__} has two {mark.kind} handlers named {mark.name!r}: "
                f"{same_kind[mark.name].fn.__name__} and {fn.__name__}"
            )
        same_kind[mark.name] = HandlerDefinition(mark, fn, self.name, self.cls)


class ActivityDefinition:
    """One activity.

    Attributes:
        name: How the journal knows it; empty for a dynamic one.
        fn: The user's function, unwrapped; bound when a bound method was registered.
        is_async: It runs on the loop; otherwise in a thread.
        is_method: Its first parameter is ``self``, or a class's ``cls``; calls do not pass it.
        options: Its declared options, checked.
        codec: Encodes its arguments and its result.
    """

    __slots__ = ("codec", "fn", "is_async", "is_method", "name", "options")

    def __init__(
        self, fn: Callable[..., Any], name: str, options: ResolvedActivityOptions = DEFAULT_ACTIVITY_OPTIONS
    ) -> None:
        self.fn = fn
        self.name = name
        self.is_async = inspect.iscoroutinefunction(fn)
        parameters = list(inspect.signature(fn).parameters)
        in_class = "." in fn.__qualname__.rpartition("<locals>.")[2]
        self.is_method = parameters[:1] == ["self"] or (in_class and parameters[:1] == ["cls"])
        self.options = options
        if name:
            self.codec = CallCodec(fn, f"activity {name}", skip_first=self.is_method)
        else:
            self.codec = DynamicCodec(
                fn, f"the dynamic activity {fn.__qualname__}", skip_first=self.is_method
            )

    def named(self, name: str) -> ActivityDefinition:
        """A dynamic one for calls by this name."""
        assert isinstance(self.codec, DynamicCodec)
        return renamed(self, name, self.codec.named(name, f"activity {name}"))

    def bound_to(self, instance: object) -> ActivityDefinition:
        """The same activity with its ``self``."""
        bound = ActivityDefinition.__new__(ActivityDefinition)
        for slot in self.__slots__:
            setattr(bound, slot, getattr(self, slot))
        bound.fn = self.fn.__get__(instance)
        return bound


def workflow_definition(cls: object) -> WorkflowDefinition:
    """Return a class's definition.

    Raises:
        RegistrationError: It is no class, or lacks ``@workflow.defn``.
    """
    if not isinstance(cls, type):
        raise RegistrationError(
            f"{cls!r} is not a workflow class: pass the class declared with @workflow.defn"
        )
    definition = cls.__dict__.get(DEFINITION)
    if not isinstance(definition, WorkflowDefinition):
        raise RegistrationError(
            f"{cls.__qualname__} is not a workflow class: it lacks the @workflow.defn decorator"
        )
    return definition


def activity_definition(fn: object) -> ActivityDefinition:
    """Return a function's definition; a bound method keeps its ``self``.

    Raises:
        RegistrationError: It is no function, or lacks ``@activity.defn``.
    """
    definition = getattr(fn, DEFINITION, None)
    if not isinstance(definition, ActivityDefinition):
        if asyncio.isfuture(fn) or inspect.isawaitable(fn):
            raise RegistrationError(
                f"{fn!r} is the result of a call: pass the activity and its arguments, as in "
                f"execute_activity(charge, order), not execute_activity(charge(order))"
            )
        name = getattr(fn, "__qualname__", None) or repr(fn)
        raise RegistrationError(f"{name} is not an activity: {_what_instead(fn)}")
    owner = getattr(fn, "__self__", None)
    if definition.is_method and owner is not None:
        return definition.bound_to(owner)
    return definition


def _what_instead(fn: object) -> str:
    if isinstance(getattr(fn, DEFINITION, None), WorkflowDefinition):
        return "it is a workflow, which workflow.execute_child_workflow() starts"
    mark = getattr(fn, MARK, None)
    return f"it is a {mark.kind} method of a workflow" if mark else "it lacks the @activity.defn decorator"


def registrable_activity(fn: object) -> ActivityDefinition:
    """Return the definition of what a runtime is to run: nothing may be missing for a call.

    Raises:
        RegistrationError: As ``activity_definition``; or it is a method without its object, or without ``self``.
    """
    definition = activity_definition(fn)
    if not definition.is_method and getattr(fn, "__self__", None) is not None:
        raise RegistrationError(
            f"activity {definition.name!r} is a method of an object, but the first parameter of "
            f"{definition.fn.__qualname__} is not called self"
        )
    if definition.is_method and getattr(fn, "__self__", None) is None:
        place, _dot, method = definition.fn.__qualname__.rpartition("<locals>.")[2].rpartition(".")
        advice = f"pass a bound method, {place}(...).{method}" if place else "it must not take self"
        raise RegistrationError(
            f"activity {definition.name!r} takes self, but {definition.fn.__qualname__} belongs to no object: {advice}"
        )
    return definition
