"""Records come back as they were, and a damaged one never does."""

import os
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everact.journal.errors import JournalCorruptError
from everact.journal.log_record import (
    COMPRESSED,
    RECORD_VERSION,
    SMALL,
    decode_record,
    encode_record,
    open_record,
)
from everact.journal.store import Entry

entries = st.lists(
    st.builds(
        Entry,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, 255),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(max_size=300),
    ),
    min_size=1,
    max_size=20,
)


def turns(count, body=b'{"kind": "turn"}'):
    return [Entry(n + 1, 2 * n + 1, n % 4, 1_700_000_000_000_000 + n, body) for n in range(count)]


@given(entries)
def test_a_record_comes_back(written):
    record = encode_record(written)
    assert decode_record(record) == written
    opened = open_record(record)
    assert [opened.entry(n) for n in range(opened.size)] == written


@given(entries, st.data())
def test_a_record_with_a_changed_byte_never_gives_other_entries(written, data):
    record = bytearray(encode_record(written))
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode_record(bytes(record))
    except JournalCorruptError:
        return
    # zstd ignores one bit of its frame; a plain text has no such bit.
    assert decoded == written
    assert record[0] & COMPRESSED


@given(entries, st.data())
def test_a_cut_or_lengthened_record_is_refused(written, data):
    record = encode_record(written)
    for damaged in (record[: data.draw(st.integers(0, len(record) - 1))], record + b"\0"):
        with pytest.raises(JournalCorruptError):
            decode_record(damaged)


def test_every_single_bit_of_a_small_compressed_record_is_guarded():
    record = encode_record(turns(12))
    assert record[0] == RECORD_VERSION | COMPRESSED
    for bit in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decoded = decode_record(bytes(damaged))
        except JournalCorruptError:
            continue
        # A bit of the frame that zstd does not use may change; the entries may not.
        assert decoded == turns(12)


def test_short_records_are_not_compressed():
    record = encode_record(turns(1))
    assert record[0] == RECORD_VERSION
    assert len(record) < SMALL
    assert turns(1)[0].body in record


def test_long_records_shrink():
    plain = sum(25 + len(entry.body) for entry in turns(500))
    assert len(encode_record(turns(500))) < plain / 3


def test_what_does_not_compress_grows_by_a_few_bytes_only():
    assert len(encode_record(turns(1, os.urandom(100_000)))) < 100_000 + 80


def test_bodies_may_be_any_buffer():
    body = bytearray(b"turn")
    record = encode_record(turns(1, body))
    body[0] = 0
    assert decode_record(record) == turns(1, b"turn")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda record: b"\x03" + record[1:], "its kind 0x03 is unknown to this version"),
        (lambda record: record[:-1] + b"?", "its checksum differs"),
        (lambda record: b"", "requires a buffer"),
    ],
)
def test_the_reason_is_named(damage, text):
    with pytest.raises(JournalCorruptError, match=text):
        decode_record(damage(encode_record(turns(1))))


def test_a_claimed_length_is_not_believed():
    # A damaged frame that claims 2**40 bytes must not allocate them.
    frame = struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 40) + encode_record(turns(100))[20:]
    record = struct.pack("<BI", RECORD_VERSION | COMPRESSED, 5000) + frame
    with pytest.raises(JournalCorruptError, match="does not state the expected length"):
        decode_record(record)


def test_threads_encode_and_decode_at_the_same_time():
    failures = []
    start = threading.Barrier(4)

    def work(number):
        start.wait()
        try:
            for size in range(1, 60):
                written = turns(size * 10, b"body of thread %d" % number)
                assert decode_record(encode_record(written)) == written
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
