"""Values to stored bytes and back, by type hint.

What goes in comes back equal and of the same type, deeply, or the call that passed it raises.
Decoding builds only classes that the hint names, that are reachable from it, or that were
registered; it never imports what stored data names.

The encodings, fixed for ever because they are stored with each value:

- ``null``: None; no bytes.
- ``raw``: bytes as they are.
- ``json``: JSON without tags; the hint, or JSON itself, says the types.
- ``tagged``: JSON in which some values carry their kind, see ``payload_tagged``.
- ``pickle``: cloudpickle, written and read only where the runtime was told to trust it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec

from .errors import PayloadDecodeError, PayloadEncodeError
from .payload_planner import Planner
from .payload_plans import Plan, decoder_of
from .payload_tagged import encode_json
from .payload_trouble import Trouble, find_cycle, find_surrogate, shorten
from .type_converters import TypeConverter, TypeUpgrade

Encode = Callable[..., "Payload"]
Decode = Callable[..., Any]

_TAG_MARK = b'{"$'  # In JSON text the quote would be escaped, so this is always a key.
_ENCODINGS = frozenset(["null", "raw", "json", "tagged"])
_WAY_OUT = (
    "Annotate it with its class, which must be a dataclass, Struct, attrs class, pydantic model, "
    "NamedTuple or enum; or use Runtime(trust_pickle=True)"
)
_decode_json = msgspec.json.Decoder().decode


class Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A stored value.

    Attributes:
        encoding: How ``data`` is to be read: ``null``, ``raw``, ``json``, ``tagged`` or ``pickle``.
        data: The bytes.
    """

    encoding: str
    data: bytes


NULL = Payload("null", b"")


def total_size(payloads: Iterable[Payload]) -> int:
    """Bytes of these values together."""
    size = 0
    for payload in payloads:
        size += len(payload.data)
    return size


@dataclass(frozen=True, slots=True)
class RawValue:
    """A value as it is stored: what dynamic workflows and activities get, and may pass on as it is.

    Where a parameter or a result is annotated with it, nothing is converted.

    Attributes:
        payload: ``workflow.payload_converter().decode(payload, SomeType)`` makes a value of it.
    """

    payload: Payload


class PayloadConverter:
    """Turns values into payloads and back; safe to use from many threads.

    Args:
        trust_pickle: Store what has no other form with cloudpickle, and read such payloads. Whoever
            can write the journal can then run code in this process.
        converters: For classes that have no stored form, and for what older versions of classes have stored.

    Raises:
        TypeError: Something among the converters is none.
        ValueError: Two are for one class, or have one name.
    """

    def __init__(
        self, *, trust_pickle: bool = False, converters: Iterable[TypeConverter[Any] | TypeUpgrade] = ()
    ) -> None:
        self.trust_pickle = trust_pickle
        self.converters = tuple(converters)
        self._planner = Planner(self.converters)
        self._encoders: dict[Any, Encode] = {}
        self._decoders: dict[Any, Decode] = {}

    def register(self, cls: type, *, name: str | None = None) -> None:
        """Let a class be stored and read where no hint names it.

        Args:
            cls: A dataclass, Struct, attrs class, model, NamedTuple or enum.
            name: What is stored for it; default its ``__name__``. Never change it once stored.

        Raises:
            ValueError: The name is taken by another class.
        """
        self._planner.register(cls, name)

    def encode(self, value: object, hint: object = Any, *, where: str = "") -> Payload:
        """Store a value.

        Args:
            value: The value; later changes to it have no effect.
            hint: The type it was declared with, resolved; ``Any`` when there is none.
            where: What the value is for, for messages: ``"argument 'order' of workflow OrderWorkflow"``.

        Returns:
            The payload.

        Raises:
            PayloadEncodeError: It is not of the hinted type or has no stored form. Nothing was written.
        """
        try:
            encode = self._encoders[hint]
        except (KeyError, TypeError):
            encode = self.encoder_for(hint)
        return encode(value, where)

    def decode(self, payload: Payload, hint: object = Any, *, where: str = "") -> Any:
        """Read a value; each call gives a fresh copy.

        Args:
            payload: What ``encode`` gave.
            hint: The type wanted, resolved; ``Any`` when there is none.
            where: What the value is for, for messages.

        Returns:
            The value.

        Raises:
            PayloadDecodeError: The bytes do not fit the hint. They are unharmed.
        """
        try:
            decode = self._decoders[hint]
        except (KeyError, TypeError):
            decode = self.decoder_for(hint)
        return decode(payload, where)

    def encoder_for(self, hint: object) -> Encode:
        """The quickest way to store many values of one hint: ``encode(value, where="") -> Payload``."""
        if hint is RawValue:
            hint = Any
        plan = self._planner.plan(hint)
        exact, slow = plan.exact, self._slow_encode

        def walk(value: object, where: str = "") -> Payload:
            return slow(plan, value, where)

        def quick(value: object, where: str = "") -> Payload:
            try:
                if exact(value):
                    return NULL if value is None else Payload("json", encode_json(value))
            except (ValueError, RecursionError, AttributeError):
                pass  # The walk says what is wrong, and where.
            return slow(plan, value, where)

        encode = quick if plan.all_plain() else walk
        self._remember(self._encoders, hint, encode)
        return encode

    def decoder_for(self, hint: object) -> Decode:
        """The quickest way to read many values of one hint: ``decode(payload, where="") -> value``."""
        if hint is RawValue:
            return _raw
        plan = self._planner.plan(hint)
        read, slow = decoder_of(hint) if plan.all_plain() else None, self._slow_decode

        def walk(payload: Payload, where: str = "") -> Any:
            return slow(plan, payload, where)

        def quick(payload: Payload, where: str = "") -> Any:
            if payload.encoding == "json":
                try:
                    return read(payload.data)  # type: ignore[misc]
                except (msgspec.MsgspecError, RecursionError, ValueError):
                    pass  # The walk reads more, and says what is wrong, and where.
            return slow(plan, payload, where)

        decode = walk if read is None else quick
        self._remember(self._decoders, hint, decode)
        return decode

    def _remember(self, table: dict[Any, Any], hint: object, call: Any) -> None:
        with contextlib.suppress(TypeError):
            table[hint] = call

    def _slow_encode(self, plan: Plan, value: object, where: str) -> Payload:
        if type(value) is RawValue:
            return value.payload
        tree: Any = None
        try:
            if type(value) is bytes and plan.fits(value):
                return Payload("raw", value)
            tree = plan.dump(value)
            if value is None:
                return NULL
            data = encode_json(tree)
            return Payload("tagged" if _TAG_MARK in data else "json", data)
        except Trouble as trouble:
            return self._refused(trouble, value, where)
        except UnicodeEncodeError:
            path = find_surrogate(value) or find_surrogate(tree) or "$"
            message = "text with a lone surrogate cannot be stored: it is not valid Unicode"
            raise PayloadEncodeError(message, where, path) from None
        except RecursionError:
            if self.trust_pickle:
                return self._pickled(value, where, "")
            cycle = find_cycle(value)
            problem = "contains itself" if cycle else "is nested too deeply"
            message = f"{type(value).__name__} {problem}, which cannot be stored"
            raise PayloadEncodeError(message, where, cycle or "$") from None

    def _refused(self, trouble: Trouble, value: object, where: str) -> Payload:
        message = trouble.message
        if trouble.kind == "unsupported":
            if self.trust_pickle:
                return self._pickled(value, where, message)
            message = f"{shorten(message, 300)}. {_WAY_OUT}"
        raise PayloadEncodeError(shorten(message), where, trouble.path) from None

    def _pickled(self, value: object, where: str, message: str) -> Payload:
        try:
            return Payload("pickle", cloudpickle.dumps(value))
        except Exception as error:
            reason = f"it cannot be pickled either: {type(error).__name__}: {error}"
            message = f"{message}; {reason}" if message else reason
            raise PayloadEncodeError(shorten(message), where) from error

    def _slow_decode(self, plan: Plan, payload: Payload, where: str, fresh: bool = False) -> Any:
        encoding, data = payload.encoding, payload.data
        if encoding == "pickle":
            return self._unpickled(data, where)
        if encoding not in _ENCODINGS:
            message = (
                f"expected {plan.name}, got the unknown encoding {shorten(repr(encoding), 60)}: if a payload codec "
                f"wrote it, pass that to Runtime(codecs=[...])"
            )
            raise PayloadDecodeError(message, where)
        try:
            if encoding == "null":
                plan.dump(None)
                return None
            if encoding == "raw":
                value = bytes(data)
                if not plan.fits(value):
                    plan.dump(value)
                return value
            return plan.load(_decode_json(data))
        except Trouble as trouble:
            raise PayloadDecodeError(shorten(trouble.message), where, trouble.path) from None
        except RecursionError:
            if not fresh:
                # Whoever wrote this had more stack left than there is here; a new thread has all of it.
                with ThreadPoolExecutor(1) as pool:
                    return pool.submit(self._slow_decode, plan, payload, where, True).result()
            message = f"expected {plan.name}, got data that is nested too deeply"
            raise PayloadDecodeError(message, where) from None
        except (msgspec.MsgspecError, ValueError) as error:
            message = f"expected {plan.name}, got {len(data)} bytes that are not JSON: {error}"
            raise PayloadDecodeError(shorten(message), where) from None

    def _unpickled(self, data: bytes, where: str) -> Any:
        if not self.trust_pickle:
            message = (
                "is stored as a pickle, which runs code when read: only Runtime(trust_pickle=True) reads it"
            )
            raise PayloadDecodeError(message, where)
        try:
            return cloudpickle.loads(data)
        except Exception as error:
            message = f"the pickle cannot be read: {type(error).__name__}: {error}"
            raise PayloadDecodeError(shorten(message), where) from error


def _raw(payload: Payload, _where: str = "") -> RawValue:
    return RawValue(payload)
