"""Dynamic workflows and activities: one definition for every name that has none of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from ..journal.errors import EveractError
from ..journal.payloads import Payload, PayloadConverter, RawValue
from .call_codec import CallCodec
from .context import current_instance
from .errors import ActivityNotRegisteredError, RegistrationError
from .publishing import encode_any

if TYPE_CHECKING:
    from .definitions import ActivityDefinition, WorkflowDefinition

T = TypeVar("T")

#: Names whose definitions are kept ready.
KEPT = 1000


def payload_converter() -> PayloadConverter:
    """How values are stored in this run's journal; ``decode(raw.payload, T)`` reads what a dynamic workflow gets."""
    return current_instance("payload_converter()")._converter


class DynamicCodec(CallCodec):
    """Arguments of a function that is called with a name and a list of raw values; its result is as any other.

    Attributes:
        name: What it is called by.
    """

    __slots__ = ("name",)

    def __init__(
        self, fn: Callable[..., Any], label: str, *, skip_first: bool = False, cls: type | None = None
    ) -> None:
        """Check the signature.

        Raises:
            RegistrationError: It does not take a name and a list.
        """
        super().__init__(fn, label, skip_first=skip_first, cls=cls)
        self.name = ""
        if not (self.hints.required <= 2 <= (self.hints.maximum or 2)):
            raise RegistrationError(
                f"{fn.__qualname__} is dynamic, so it is called with the name and the list of the arguments, each a "
                f"RawValue: give it these two parameters"
            )

    def named(self, name: str, label: str) -> Self:
        """The same for calls by this name."""
        made = type(self).__new__(type(self))
        for cls in (CallCodec, DynamicCodec):
            for slot in cls.__slots__:
                setattr(made, slot, getattr(self, slot))
        made.name = name
        made.become(label)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """None: the stored arguments have no names."""
        return ()

    def same_parameters(self, other: CallCodec) -> bool:
        """Whether the function itself takes the same parameters."""
        return self.hints.names == other.hints.names and self.required == other.required

    def encode_args(
        self, converter: PayloadConverter, args: Sequence[Any], kwargs: dict[str, Any] | None = None
    ) -> tuple[tuple[Payload, ...], tuple[str, ...]]:
        """Encode arguments by what they are.

        Raises:
            TypeError: Some are given by keyword.
            PayloadEncodeError: A value has no stored form.
        """
        if kwargs:
            raise TypeError(f"{self.label} is dynamic and takes no arguments by keyword: {', '.join(kwargs)}")
        encoded = [
            encode_any(converter, value, f"argument {number} of {self.label}")
            for number, value in enumerate(args, 1)
        ]
        return tuple(encoded), ()

    def decode_args(
        self,
        converter: PayloadConverter,  # noqa: ARG002
        payloads: Sequence[Payload],
        keywords: Sequence[str] = (),  # noqa: ARG002
    ) -> tuple[list[Any], dict[str, Any]]:
        """The name and the arguments as they are stored."""
        return [self.name, [RawValue(payload) for payload in payloads]], {}

    def values_of(
        self,
        converter: PayloadConverter,  # noqa: ARG002
        payloads: Sequence[Payload],
        *,
        extra_fields: bool = False,  # noqa: ARG002
    ) -> list[Any]:
        """Arguments that came from another process, as they came."""
        return [RawValue(payload) for payload in payloads]


def renamed(definition: T, name: str, codec: DynamicCodec) -> T:
    """A copy of a dynamic definition for one name."""
    made: Any = type(definition).__new__(type(definition))
    for slot in type(definition).__slots__:  # type: ignore[attr-defined]
        setattr(made, slot, getattr(definition, slot))
    made.name = name
    made.codec = codec
    return made  # type: ignore[no-any-return]


def type_name(definition: WorkflowDefinition) -> str:
    """The type name of runs that are started by a class.

    Raises:
        RegistrationError: It is dynamic, so that only the caller knows the name.
    """
    if not definition.name:
        raise RegistrationError(
            f"{definition.cls.__qualname__} is a dynamic workflow: start its runs by the name of a workflow type, as "
            f"in spawn('SomeName', ...)"
        )
    return definition.name


def not_registered(definition: ActivityDefinition, known: Iterable[str]) -> EveractError:
    """Why an activity cannot be called by its function."""
    if definition.name:
        return ActivityNotRegisteredError(definition.name, list(known))
    return RegistrationError(
        f"{definition.fn.__qualname__} is a dynamic activity: call it by a name, as in "
        f"workflow.execute_activity('some_name', ...)"
    )


class UndeclaredActivities(dict[str, "ActivityDefinition"]):
    """Activities of a replay that was told of none: whatever is called by its function counts as registered."""


def undeclared(definition: ActivityDefinition, known: Mapping[str, ActivityDefinition]) -> ActivityDefinition:
    """What counts of an activity that is called by its function and is not among the registered ones.

    Raises:
        ActivityNotRegisteredError: Only those count.
        RegistrationError: It is dynamic, so that it has no name.
    """
    if isinstance(known, UndeclaredActivities) and definition.name:
        return definition
    raise not_registered(definition, known)


class _Named(Protocol):
    def named(self, name: str) -> Self: ...


D = TypeVar("D", bound=_Named)


class WithDynamic(dict[str, D]):
    """Definitions by name, and one that stands in for all names that have none of their own.

    Looking a name up finds the stand-in; going through it does not.
    """

    def __init__(self, known: Mapping[str, D], dynamic: D) -> None:
        super().__init__(known)
        self._dynamic = dynamic
        self._made: OrderedDict[str, D] = OrderedDict()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(name)

    def __missing__(self, name: str) -> D:
        if not name:
            raise KeyError(name)
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._dynamic.named(name)
            if len(self._made) > KEPT:
                self._made.popitem(last=False)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """The definition of a name, be it the stand-in."""
        return self[name] if name else default
