"""How the arguments and the result of one function are checked and encoded, at the call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..journal.errors import PayloadDecodeError, PayloadEncodeError
from ..journal.payloads import Payload, PayloadConverter
from ..journal.type_hints import CallHints, enclosing_names, hints_of

_Encode = Callable[[Any, str], Payload]
_Decode = Callable[[Payload, str], Any]

#: Converters (one for each Runtime) that a codec is ready for at once.
_CONVERTERS = 8


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A codec made ready for one converter; never changed, so that threads of two runtimes cannot mix theirs."""

    converter: PayloadConverter | None
    arg_encoders: tuple[_Encode, ...]
    arg_decoders: tuple[_Decode, ...]
    encode_result: _Encode
    decode_result: _Decode
    result_decoder: Callable[[Payload], Any]


def _unprepared(*_args: Any) -> Any:
    raise AssertionError("a codec is prepared before it is used")


_UNPREPARED = _Prepared(None, (), (), _unprepared, _unprepared, _unprepared)


def _unknown_field(given: Any, known: Any, path: str) -> str:
    """Path of the first field that only the given one has; empty when there is none."""
    inner: list[tuple[Any, Any, str]] = []
    if type(given) is type(known) is dict:
        for name in given:
            if name not in known:
                return f"{path}.{name}"
        inner = [(part, known[name], f"{path}.{name}") for name, part in given.items()]
    elif type(given) is type(known) is list and len(given) == len(known):
        inner = [(part, known[n], f"{path}[{n}]") for n, part in enumerate(given)]
    return next((found for one in inner if (found := _unknown_field(*one))), "")


def _refuse_unknown_fields(
    converter: PayloadConverter, payload: Payload, value: Any, hint: Any, where: str
) -> None:
    """Refuse a value that came with fields that its classes do not have.

    The stored form of a value has all its fields, so what does not come back was not read.

    Raises:
        PayloadEncodeError: It has such a field; with its path.
    """
    known = converter.encode(value, hint, where=where)
    if payload.encoding == known.encoding == "json":
        path = _unknown_field(msgspec.json.decode(payload.data), msgspec.json.decode(known.data), "$")
        if path:
            raise PayloadEncodeError(f"{type(value).__name__} has no such field", where, path)


class CallCodec:
    """One function's arguments and result, to payloads and back.

    Attributes:
        label: What it is, for error texts: ``"activity charge"``.
        hints: Its resolved signature.
    """

    __slots__ = (
        "_all_prepared",
        "_late",
        "_prepared",
        "_result_where",
        "_wheres",
        "hints",
        "label",
    )

    def __init__(
        self, fn: Callable[..., Any], label: str, *, skip_first: bool = False, cls: type | None = None
    ) -> None:
        around = enclosing_names(fn, cls)
        self.hints: CallHints = hints_of(fn, skip_first, around)
        self._late: Callable[[], CallHints] | None = None
        if self.hints.unresolved:  # perhaps defined further down in its module: look again at the first use
            words = set(re.findall(r"\w+", " ".join(self.hints.unresolved_texts)))
            kept = {name: value for name, value in around.items() if name in words}
            self._late = lambda: hints_of(fn, skip_first, kept)
        self.become(label)

    def become(self, label: str) -> None:
        """Be called this in error texts."""
        self.label = label
        self._prepared = _UNPREPARED  # the one used last
        self._all_prepared: dict[PayloadConverter, _Prepared] = {}
        self._wheres = tuple(f"argument {name!r} of {label}" for name in self.hints.names)
        self._result_where = f"result of {label}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return self.hints.names

    @property
    def required(self) -> int:
        """How many of them have no default."""
        return self.hints.required

    def same_parameters(self, other: CallCodec) -> bool:
        """Whether both take the same parameters."""
        return self.names == other.names and self.required == other.required

    def accepts_calls_of(self, other: CallCodec) -> bool:
        """Whether every positional call that fits the other fits this one too."""
        most = self.hints.maximum
        fits = most is None or (other.hints.maximum is not None and other.hints.maximum <= most)
        return fits and self.required <= other.required and not self.hints.required_keywords

    def _prepare(self, converter: PayloadConverter) -> _Prepared:
        """Find or make what belongs to a converter that is not the one used last."""
        prepared = self._all_prepared.get(converter)
        if prepared is None:
            prepared = self._make(converter)
            others = list(self._all_prepared.items())[1 - _CONVERTERS :]
            self._all_prepared = {
                **dict(others),
                converter: prepared,
            }  # replaced, as threads may be reading it
        self._prepared = prepared
        return prepared

    def _make(self, converter: PayloadConverter) -> _Prepared:
        late = self._late
        if late is not None:
            self.hints, self._late = late(), None
        hints, where = self.hints, self._result_where
        decode: _Decode = converter.decoder_for(hints.returns)
        return _Prepared(
            converter,
            tuple(
                self._encoder(converter, name, hint)
                for name, hint in zip(hints.names, hints.hints, strict=True)
            ),
            tuple(map(converter.decoder_for, hints.hints)),
            self._encoder(converter, "return", hints.returns),
            decode,
            lambda payload: decode(payload, where),
        )

    def _encoder(self, converter: PayloadConverter, name: str, hint: Any) -> _Encode:
        """The encoder of one parameter; when its class is unknown, the error says why."""
        encode: _Encode = converter.encoder_for(hint)
        if name not in self.hints.unresolved:
            return encode
        text = self.hints.unresolved_texts[self.hints.unresolved.index(name)]

        def encode_unresolved(value: Any, where: str) -> Payload:
            try:
                return encode(value, where)
            except PayloadEncodeError as error:
                said = error.message.partition(". Annotate")[0]
                raise PayloadEncodeError(
                    f"{said}. Its annotation {text!r} could not be resolved, so its class is unknown: define or "
                    f"import what it names at the top of the module (not under TYPE_CHECKING)",
                    where,
                    error.path,
                ) from None

        return encode_unresolved

    def encode_args(
        self, converter: PayloadConverter, args: Sequence[Any], kwargs: dict[str, Any] | None = None
    ) -> tuple[tuple[Payload, ...], tuple[str, ...]]:
        """Check and encode the arguments of a call.

        Returns:
            One payload for each argument, and the names of the last ones, which were given by keyword.

        Raises:
            TypeError: Their number or names do not fit the signature.
            PayloadEncodeError: A value does not fit its hint, or has no stored form.
        """
        prepared = self._prepared
        if prepared.converter is not converter:
            prepared = self._prepare(converter)
        try:
            positional, rest = self.hints.bind(args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self.label}: {error}") from None
        encoders = prepared.arg_encoders
        if not rest and len(positional) <= len(encoders):
            return tuple(
                [
                    encode(value, where)
                    for encode, value, where in zip(encoders, positional, self._wheres, strict=False)
                ]
            ), ()
        payloads = [self._encode_at(prepared, position, value) for position, value in enumerate(positional)]
        for name, value in rest.items():
            encode = self._encoder(converter, name, self.hints.hint_of(name))
            payloads.append(encode(value, f"argument {name!r} of {self.label}"))
        return tuple(payloads), tuple(rest)

    def _encode_at(self, prepared: _Prepared, position: int, value: Any) -> Payload:
        if position < len(prepared.arg_encoders):
            return prepared.arg_encoders[position](value, self._wheres[position])
        where = f"argument {position + 1} of {self.label}"
        assert prepared.converter is not None
        return prepared.converter.encode(value, self.hints.hint_at(position), where=where)

    def decode_args(
        self, converter: PayloadConverter, payloads: Sequence[Payload], keywords: Sequence[str] = ()
    ) -> tuple[list[Any], dict[str, Any]]:
        """Decode what ``encode_args`` made, for a call of the function as it is now.

        Raises:
            PayloadDecodeError: A stored value does not fit the hint.
            TypeError: The stored arguments do not fit the signature any more.
        """
        prepared = self._prepared
        if prepared.converter is not converter:
            prepared = self._prepare(converter)
        decoders = prepared.arg_decoders
        if not keywords and self.required <= len(payloads) <= len(decoders):
            return [
                decode(payload, where)
                for decode, payload, where in zip(decoders, payloads, self._wheres, strict=False)
            ], {}
        count = len(payloads) - len(keywords)
        args = [
            converter.decode(
                payload, self.hints.hint_at(position), where=f"argument {position + 1} of {self.label}"
            )
            for position, payload in enumerate(payloads[:count])
        ]
        named = {
            name: converter.decode(
                payload, self.hints.hint_of(name), where=f"argument {name!r} of {self.label}"
            )
            for name, payload in zip(keywords, payloads[count:], strict=True)
        }
        try:
            self.hints.bind(args, named)
        except TypeError as error:
            raise TypeError(f"{self.label}: the stored arguments do not fit its signature: {error}") from None
        return args, named

    def values_of(
        self, converter: PayloadConverter, payloads: Sequence[Payload], *, extra_fields: bool = False
    ) -> list[Any]:
        """Check and decode the arguments of a call that came from another process.

        Args:
            converter: Of the runtime.
            payloads: The arguments as they came.
            extra_fields: Take fields that their classes do not have; otherwise somebody has mistyped them.

        Raises:
            TypeError: Their number does not fit the signature.
            PayloadEncodeError: One does not fit its hint, or has a field that its class does not have; the caller
                passed it, so it is as at a call in this process.
        """
        if self._prepared.converter is not converter:
            self._prepare(converter)
        try:
            self.hints.bind(payloads, None)
        except TypeError as error:
            raise TypeError(f"{self.label}: {error}") from None
        values: list[Any] = []
        for position, payload in enumerate(payloads):
            known = position < len(self._wheres)
            where = self._wheres[position] if known else f"argument {position + 1} of {self.label}"
            hint = self.hints.hint_at(position)
            try:
                value = converter.decode(payload, hint, where=where)
            except PayloadDecodeError as error:
                raise PayloadEncodeError(error.message, error.where, error.path) from None
            if not extra_fields:
                _refuse_unknown_fields(converter, payload, value, hint, where)
            values.append(value)
        return values

    def encode_result(self, converter: PayloadConverter, value: Any) -> Payload:
        """Encode what the function returned.

        Raises:
            PayloadEncodeError: It does not fit the return hint, or has no stored form.
        """
        prepared = self._prepared
        if prepared.converter is not converter:
            prepared = self._prepare(converter)
        return prepared.encode_result(value, self._result_where)

    def result_value(
        self, converter: PayloadConverter, payload: Payload, *, extra_fields: bool = False
    ) -> Any:
        """Check and decode a result that came from another process; arguments as of ``values_of``.

        Raises:
            PayloadEncodeError: It does not fit the return hint, or has a field that its class does not have.
        """
        try:
            value = self.decode_result(converter, payload)
        except PayloadDecodeError as error:
            raise PayloadEncodeError(error.message, error.where, error.path) from None
        if not extra_fields:
            _refuse_unknown_fields(converter, payload, value, self.hints.returns, self._result_where)
        return value

    def result_decoder(self, converter: PayloadConverter) -> Callable[[Payload], Any]:
        """``decode_result`` for this converter as a function of the payload alone."""
        prepared = self._prepared
        if prepared.converter is not converter:
            prepared = self._prepare(converter)
        return prepared.result_decoder

    def decode_result(self, converter: PayloadConverter, payload: Payload) -> Any:
        """Decode a stored result.

        Raises:
            PayloadDecodeError: It does not fit the return hint.
        """
        prepared = self._prepared
        if prepared.converter is not converter:
            prepared = self._prepare(converter)
        return prepared.decode_result(payload, self._result_where)
