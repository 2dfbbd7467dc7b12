"""What a call of a handler means: its name, and its arguments in their stored form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..journal.payloads import Payload, PayloadConverter
from .call_codec import CallCodec
from .definitions import MARK, Mark, WorkflowDefinition
from .errors import UnknownHandlerError
from .options import check_text
from .publishing import encode_any


def handler_name(kind: str, handler: Any) -> str:
    """The name that a call means by a method or a string."""
    if isinstance(handler, str):
        return check_text(f"the name of a {kind}", handler, may_be_empty=True)
    mark = getattr(handler, "__dict__", {}).get(MARK)
    if not isinstance(mark, Mark) or mark.kind != kind:
        what = getattr(handler, "__qualname__", None) or repr(handler)
        raise TypeError(f"{what} is no {kind}: pass a method declared with @workflow.{kind}, or its name")
    return mark.name


def signal_arguments(
    converter: PayloadConverter, definition: WorkflowDefinition | None, handler: Any, args: Sequence[Any]
) -> tuple[str, tuple[Payload, ...]]:
    """Name and arguments of a signal that a run sends, for a receiver of this type; None when that is not known.

    Raises:
        UnknownHandlerError: The type has no such signal, and never will.
        TypeError: Wrong number of arguments, or the handler is no signal.
        PayloadEncodeError: An argument does not fit its hint, or has no stored form.
    """
    name = handler_name("signal", handler)
    codec: CallCodec | None = None
    if definition is not None:
        found = definition.handlers["signal"].get(name)
        if found is not None:
            codec = found.codec
        elif "signal" not in definition.dynamic and not definition.sets_handlers:
            raise UnknownHandlerError("signal", name, definition.name, list(definition.handlers["signal"]))
    elif not isinstance(handler, str):
        codec = CallCodec(handler, f"signal {handler.__qualname__}", skip_first=True)
    if codec is not None:
        return name, codec.encode_args(converter, args)[0]
    where = f"argument of signal {name}"
    return name, tuple(encode_any(converter, arg, where) for arg in args)
