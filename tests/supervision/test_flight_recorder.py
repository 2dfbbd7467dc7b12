"""The flight recorder: what is in its slots survives the process, and says nothing after an orderly end."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from everact.supervision import flight_recorder
from everact.supervision.blame import LONGEST_PROBATION, PROBATION, probation, suspects_of
from everact.supervision.flight_recorder import (
    BEGUN,
    FILE_NAME,
    FREE,
    LABEL_SIZE,
    RUNNING,
    FlightRecorder,
    Slot,
    excuse,
    label_of,
    read_flight,
)

OWNER = "0123456789abcdef0123456789abcdef"

PROGRAM = """
import os, signal, sys
from everact.supervision.flight_recorder import BEGUN, FlightRecorder
recorder = FlightRecorder(2)
recorder.keep(sys.argv[1], sys.argv[2])
first, second, third = (recorder.take() for _ in range(3))
recorder.run(first, 1, 7, 8, 9, b"label")
recorder.run(second, 2, 2**64 - 1)
recorder.map[second] = BEGUN
recorder.run(third, 3, 5)
if sys.argv[3] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "exit":
    os._exit(3)
recorder.close()
"""


def recorded(directory, end):
    """Let a process write slots, and end in this way."""
    args = [sys.executable, "-c", PROGRAM, os.fspath(directory), OWNER, end]
    return subprocess.run(args, check=False).returncode


@pytest.fixture
def recorder(tmp_path):
    recorder = FlightRecorder(2)
    recorder.keep(tmp_path, OWNER)
    yield recorder
    recorder.close()


@pytest.mark.parametrize(("end", "code"), [("kill", -signal.SIGKILL), ("exit", 3)])
def test_slots_survive_a_hard_death(tmp_path, end, code):
    assert recorded(tmp_path, end) == code
    flight = read_flight(tmp_path, OWNER)
    assert flight.same_boot
    assert not flight.excused
    assert flight.slots == (
        Slot(True, 1, 7, 8, 9, b"label"),
        Slot(False, 2, 2**64 - 1, 0, 0, b""),
        Slot(True, 3, 5, 0, 0, b""),
    )
    assert [slot.kind for slot in suspects_of(flight)] == [1, 3]


def test_nothing_is_left_after_an_orderly_end(tmp_path):
    assert recorded(tmp_path, "close") == 0
    assert list(tmp_path.iterdir()) == []
    assert read_flight(tmp_path, OWNER) is None


def test_only_the_owner_can_read_the_file(tmp_path, recorder):
    mode = stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode)
    assert mode == 0o600
    assert recorder.is_kept


def test_a_life_takes_the_place_of_the_last_one(tmp_path):
    recorded(tmp_path, "kill")
    before = read_flight(tmp_path, OWNER)
    recorder = FlightRecorder(1)
    assert read_flight(tmp_path, OWNER) == before
    recorder.keep(tmp_path, OWNER)
    after = read_flight(tmp_path, OWNER)
    assert after.slots == ()
    assert after.life != before.life
    recorder.close()


def test_a_file_of_another_owner_says_nothing(tmp_path):
    recorded(tmp_path, "kill")
    assert read_flight(tmp_path, "f" * 32) is None


@pytest.mark.parametrize("data", [b"", b"EVFLIGHT", b"x" * 1000, b"EVFLIGHT\x09\x00\x80\x00" + bytes(500)])
def test_a_file_that_is_none_says_nothing(tmp_path, data):
    (tmp_path / FILE_NAME).write_bytes(data)
    assert read_flight(tmp_path, OWNER) is None


def test_a_death_that_was_asked_for_makes_nobody_a_suspect(tmp_path):
    assert not excuse(tmp_path)
    recorded(tmp_path, "kill")
    assert excuse(tmp_path)
    flight = read_flight(tmp_path, OWNER)
    assert flight.excused
    assert len(flight.slots) == 3
    assert suspects_of(flight) == []


def test_after_the_death_of_the_machine_nobody_is_a_suspect(tmp_path, monkeypatch):
    recorded(tmp_path, "kill")
    monkeypatch.setattr(flight_recorder, "boot_id", lambda: "another")
    flight = read_flight(tmp_path, OWNER)
    assert not flight.same_boot
    assert suspects_of(flight) == []


def test_slots_are_used_again(recorder):
    first = recorder.take()
    second = recorder.take()
    recorder.free(first)
    assert recorder.take() == first
    assert len({first, second, recorder.take()}) == 3


def test_it_grows_and_keeps_what_it_has(tmp_path, recorder):
    slots = [recorder.take() for _ in range(40)]
    assert len(set(slots)) == 40
    for number, slot in enumerate(slots):
        recorder.run(slot, 1, number)
    assert [slot.key for slot in read_flight(tmp_path, OWNER).slots] == list(range(40))


def test_without_a_file_it_grows_too():
    recorder = FlightRecorder(1)
    slots = [recorder.take() for _ in range(9)]
    recorder.run(slots[-1], 1, 1)
    assert len(set(slots)) == 9
    assert not recorder.is_kept


def test_without_room_to_grow_there_is_no_slot(tmp_path, recorder, monkeypatch):
    slots = [recorder.take(), recorder.take()]

    def full(_fd, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flight_recorder, "_write", full)
    assert recorder.take() == -1
    recorder.free(slots[0])
    assert recorder.take() == slots[0]


def test_without_room_for_the_file_it_stays_in_memory(tmp_path, monkeypatch):
    def full(_fd, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flight_recorder, "_write", full)
    recorder = FlightRecorder(1)
    with pytest.raises(OSError, match="No space"):
        recorder.keep(tmp_path, OWNER)
    assert list(tmp_path.iterdir()) == []
    recorder.run(recorder.take(), 1, 1)


def test_states(tmp_path, recorder):
    slot = recorder.take()
    recorder.run(slot, 1, 1)
    recorder.map[slot] = BEGUN
    assert not read_flight(tmp_path, OWNER).slots[0].is_running
    recorder.map[slot] = RUNNING
    assert read_flight(tmp_path, OWNER).slots[0].is_running
    recorder.map[slot] = FREE
    assert read_flight(tmp_path, OWNER).slots == ()


def test_a_forked_child_writes_to_memory_of_its_own(tmp_path, recorder):
    slot = recorder.take()
    recorder.run(slot, 1, 1)
    recorder.forget()
    recorder.run(slot, 1, 2)
    assert [found.key for found in read_flight(tmp_path, OWNER).slots] == [1]
    recorder.close()
    assert (tmp_path / FILE_NAME).exists()


def test_a_long_label_is_cut(tmp_path, recorder):
    label = label_of("ä" * 100)
    assert len(label) == LABEL_SIZE
    recorder.run(recorder.take(), 1, 1, 0, 0, label)
    assert read_flight(tmp_path, OWNER).slots[0].label == label


def test_the_time_alone_doubles_up_to_a_limit():
    assert [probation(n) for n in (0, 1, 2, 3)] == [PROBATION, PROBATION, 2 * PROBATION, 4 * PROBATION]
    assert probation(50) == LONGEST_PROBATION
