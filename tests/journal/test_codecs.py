"""The codecs themselves, and the list of what they are applied to."""

import typing

import msgspec
import pytest
from support.codecs import KEY, encrypted

from everact.journal import events as ev
from everact.journal.codecs import checked, trouble
from everact.journal.coded_fields import CODED_FIELDS, fields_of, map_event
from everact.journal.errors import PayloadCodecError
from everact.journal.failures import Failure
from everact.journal.payloads import NULL, Payload
from everact.payloads import AesGcmCodec, PayloadCodec, ZstdCodec

ORDER = Payload("json", b'{"secret": "tea"}')
LARGE = Payload("json", b'"' + b"tea " * 1000 + b'"')


def mentions(hint, wanted):
    return hint in wanted or any(mentions(inner, wanted) for inner in typing.get_args(hint))


def test_every_field_with_payloads_or_failures_is_listed():
    """A new event with such a field fails here until the list has it."""
    found = {}
    for cls in typing.get_args(ev.AnyEvent):
        hints = typing.get_type_hints(cls)
        holding = (Payload, Failure, ev.Header, ev.WorkflowStarted)
        names = tuple(name for name in cls.__struct_fields__ if mentions(hints[name], holding))
        if names:
            found[cls] = names
    assert found == CODED_FIELDS


def test_every_field_of_a_failure_that_holds_what_users_wrote_is_walked():
    hints = typing.get_type_hints(Failure)
    holding = {name for name, hint in hints.items() if mentions(hint, (Payload, Failure))}
    assert holding == {"details", "cause", "group", "coded"}  # and message and trace, as one text
    texts = {name for name, hint in hints.items() if hint is str}
    assert texts == {"type", "message", "trace", "kind", "retry_state"}


def tree(word):
    return Failure("E", message=f"m {word}", trace=f"t {word}", details=(Payload("json", word.encode()),))


FAILURE = msgspec.structs.replace(
    tree("top"),
    cause=msgspec.structs.replace(tree("cause"), cause=tree("deep")),
    group=(tree("one"), tree("two")),
)


def walk(event, codec, way):
    payloads = [payload for _, payload in fields_of(event)]
    made = iter(getattr(codec, way)(payloads))
    return map_event(event, lambda _payload, _place: next(made))


def test_a_failure_is_coded_at_every_level_and_comes_back():
    event = ev.WorkflowFailed(FAILURE)
    coded = walk(event, encrypted(), "encode")
    body = ev.encode_record(ev.Turn((), (coded,)))
    for word in ("top", "cause", "deep", "one", "two"):
        assert word.encode() not in body
    assert {one.type for one in coded.failure.tree()} == {"E"}
    assert all(one.message == one.trace == "" for one in coded.failure.tree())
    assert walk(coded, encrypted(), "decode") == event


def test_the_places_of_payloads_have_names():
    event = ev.ActivityScheduled(3, "charge", (ORDER, NULL))
    assert [where for where, _ in fields_of(event)] == [
        "argument 1 of activity charge",
        "argument 2 of activity charge",
    ]
    named = fields_of(event, lambda _event: ("activity charge", ("order", "card")))
    assert [where for where, _ in named] == [
        "argument 'order' of activity charge",
        "argument 'card' of activity charge",
    ]
    places = [where for where, _ in fields_of(ev.WorkflowFailed(FAILURE))]
    assert places[0] == "the failure's message of the workflow"
    assert "the failure's cause's cause's detail 1 of the workflow" in places
    assert "the failure's member 2's message of the workflow" in places


class TestZstd:
    def test_it_makes_large_payloads_small_and_leaves_the_others(self):
        small, large = ZstdCodec().encode([ORDER, LARGE])
        assert small is ORDER
        assert large.encoding == "zstd"
        assert len(large.data) < len(LARGE.data) / 10
        assert ZstdCodec().decode([small, large]) == [ORDER, LARGE]

    def test_what_gets_no_smaller_is_left(self):
        import random

        noise = Payload("raw", random.Random(1).randbytes(1000))
        assert ZstdCodec().encode([noise]) == [noise]

    def test_a_damaged_payload_is_an_error(self):
        with pytest.raises(PayloadCodecError, match="the compressed payload is damaged"):
            ZstdCodec().decode([Payload("zstd", b"not a frame")])

    def test_its_options_are_checked(self):
        with pytest.raises(ValueError, match="level must be from 1 to 22, not 0"):
            ZstdCodec(level=0)
        with pytest.raises(ValueError, match="smallest must not be negative"):
            ZstdCodec(smallest=-1)


class TestAesGcm:
    def test_it_hides_everything_even_none_and_the_encoding(self):
        coded = encrypted().encode([ORDER, NULL])
        assert all(payload.encoding == "aes-gcm" for payload in coded)
        assert all(b"tea" not in payload.data and b"json" not in payload.data for payload in coded)
        assert encrypted().decode(coded) == [ORDER, NULL]

    def test_each_payload_has_a_nonce_of_its_own(self):
        assert len({payload.data for payload in encrypted().encode([ORDER] * 100)}) == 100

    def test_the_stored_form_never_changes(self):
        stored = bytes.fromhex("01016b" + "30313233343536373839" + "6162")
        cipher = encrypted()._ciphers["k"]
        data = stored + cipher.encrypt(stored[3:], msgspec.msgpack.encode(ORDER), stored[:3])
        assert encrypted().decode([Payload("aes-gcm", data)]) == [ORDER]

    def test_keys_are_changed_in_turn(self):
        old, new = b"o" * 16, b"n" * 32
        before = AesGcmCodec({"2025": old}, active="2025").encode([ORDER])
        both = AesGcmCodec({"2025": old, "2026": new}, active="2026")
        after = both.encode([ORDER])
        assert both.decode([*before, *after]) == [ORDER, ORDER]
        assert AesGcmCodec({"2026": new}, active="2026").decode(after) == [ORDER]

    def test_an_unknown_key_is_named_with_what_to_do(self):
        coded = encrypted().encode([ORDER])
        other = AesGcmCodec({"a": KEY, "b": KEY}, active="a")
        with pytest.raises(PayloadCodecError) as caught:
            other.decode(coded)
        assert str(caught.value) == (
            "it is encrypted with the key 'k', which is not among the keys here: 'a', 'b'. Add that key to "
            "AesGcmCodec(keys=...); a key is needed for as long as the journal has payloads of it"
        )

    def test_another_key_under_the_same_id_and_changed_bytes_are_noticed(self):
        (coded,) = encrypted().encode([ORDER])
        with pytest.raises(PayloadCodecError, match="the key under this id is another one"):
            AesGcmCodec({"k": b"x" * 32}, active="k").decode([coded])
        for position in range(3, len(coded.data)):
            data = bytearray(coded.data)
            data[position] ^= 1
            with pytest.raises(PayloadCodecError, match="cannot be decrypted"):
                encrypted().decode([Payload("aes-gcm", bytes(data))])

    @pytest.mark.parametrize("data", [b"", b"\1", b"\1\1k", b"\2\1k" + b"0" * 40])
    def test_what_is_too_short_or_of_another_version_is_damaged(self, data):
        with pytest.raises(PayloadCodecError, match="damaged, or of a newer version"):
            encrypted().decode([Payload("aes-gcm", data)])

    def test_plain_values_are_refused_unless_they_are_expected(self):
        with pytest.raises(PayloadCodecError) as caught:
            encrypted().decode([ORDER])
        assert str(caught.value) == (
            "it is stored without encryption (as 'json'); if it was written before the journal was encrypted, read it "
            "with AesGcmCodec(..., accept_plain=True)"
        )
        assert encrypted(accept_plain=True).decode([ORDER]) == [ORDER]

    def test_keys_are_checked(self):
        with pytest.raises(ValueError, match="the key 'k' must have 16, 24 or 32 bytes, not 5"):
            AesGcmCodec({"k": b"short"}, active="k")
        with pytest.raises(TypeError, match="the key 'k' must be bytes, not str"):
            AesGcmCodec({"k": "x" * 32}, active="k")
        with pytest.raises(ValueError, match="the active key 'b' is not among the keys: 'k'"):
            AesGcmCodec({"k": KEY}, active="b")
        with pytest.raises(ValueError, match="a text of 1 to 255 bytes"):
            AesGcmCodec({"": KEY}, active="")

    def test_keys_are_not_shown(self):
        assert repr(encrypted()) == "<AesGcmCodec active='k' keys='k'>"

    def test_digest_keys_tell_nothing_of_the_key_and_the_active_one_is_first(self):
        one = AesGcmCodec({"a": b"a" * 32, "b": b"b" * 32}, active="b")
        other = AesGcmCodec({"a": b"a" * 32, "b": b"b" * 32}, active="a")
        assert one.digest_keys() == other.digest_keys()[::-1]
        assert b"b" * 32 not in one.digest_keys()

    def test_without_the_package_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None)
        with pytest.raises(ImportError, match=r"pip install 'everact\[encryption\]'"):
            encrypted()


class Custom(PayloadCodec):
    def encode(self, payloads):
        return payloads

    def decode(self, payloads):
        return payloads


def test_what_a_codec_returns_is_checked():
    codec = Custom()
    assert checked(codec, "encode", [ORDER], (ORDER,)) == [ORDER]
    with pytest.raises(PayloadCodecError, match="Custom: encode was given 2 payloads and returned 1"):
        checked(codec, "encode", [ORDER, NULL], [ORDER])
    with pytest.raises(PayloadCodecError, match="Custom: decode must return a list of payloads, not None"):
        checked(codec, "decode", [ORDER], None)
    # It would be taken for a large payload of the journal, and that for missing.
    with pytest.raises(
        PayloadCodecError,
        match="Custom: the encoding 'blob' is the journal's own mark: give what the codec makes another one, "
        "such as 'mine/blob'",
    ):
        checked(codec, "encode", [ORDER], [Payload("blob", b"key")])


def test_what_a_codec_raises_says_which_one_it_was():
    error = trouble(Custom(), "decode", OSError("no route to the vault"))
    assert str(error) == "payload codec Custom could not decode it: OSError: no route to the vault"
    assert isinstance(error.__cause__, OSError)
    assert Custom().digest_keys() == ()
