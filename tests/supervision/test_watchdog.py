"""The watchdog names what blocks its thread, breaks it, and never what comes after it."""

import threading

import pytest
from support.clock import ManualClock

from everact.supervision import watchdog as module
from everact.supervision.watchdog import Watchdog


class Broken(BaseException):
    pass


class Watched:
    """A watchdog of a thread of its own, whose looks the test makes."""

    def __init__(self, *, may_break=True, break_after=10.0):
        self.clock = ManualClock()
        self.named = []
        self.may_break = may_break
        self.break_after = break_after
        self.inside = threading.Event()
        self.go_on = False
        self.result = None

    def run(self, code):
        """Run ``code(watched)`` in a thread that is watched; returns the thread."""

        def body():
            self.dog = Watchdog(
                self.clock,
                warn_after=2.0,
                break_after=self.break_after,
                exception=Broken,
                may_break=lambda _current: self.may_break,
                named=lambda *args: self.named.append(args),
            )
            try:
                self.result = code(self)
            except Broken:
                self.result = "broken outside"

        thread = threading.Thread(target=body)
        thread.start()
        assert self.inside.wait(20)
        return thread

    def look(self, seconds=0.0):
        self.clock.advance(seconds)
        self.dog.look()


def end(watched):
    """What the loop's side does at the end of something."""
    watched.dog.current = None
    return watched.dog.is_alert and watched.dog.finish()


def busy(watched):
    """In a function of its own: the way back of a loop is outside of its ``try`` from Python 3.12 on."""
    watched.inside.set()
    while not watched.go_on:
        pass


def spin(watched):
    """Something that runs until it is broken or told to go on."""
    watched.dog.current = ("turn",)
    try:
        busy(watched)
    except Broken:
        return "broken", end(watched)
    return "ended", end(watched)


def test_what_runs_long_is_named_once_with_its_stack():
    watched = Watched(break_after=None)
    thread = watched.run(spin)
    watched.look()
    watched.look(1.9)
    assert watched.named == []
    watched.look(0.2)
    watched.look(30)
    watched.go_on = True
    thread.join()
    [(what, seconds, frame)] = watched.named
    assert what == ("turn",)
    assert seconds == pytest.approx(2.1)
    assert frame.f_code is busy.__code__
    assert watched.result == ("ended", False)
    assert watched.dog.stalled == pytest.approx(32.1)


def test_what_runs_too_long_is_broken():
    watched = Watched()
    thread = watched.run(spin)
    watched.look()
    watched.look(9.9)
    assert watched.dog._fired is None
    watched.look(0.2)
    thread.join()
    assert watched.result == ("broken", True)


def test_what_may_not_be_broken_is_only_named():
    watched = Watched(may_break=False)
    thread = watched.run(spin)
    watched.look()
    watched.look(100)
    watched.look(100)
    assert len(watched.named) == 1
    watched.go_on = True
    thread.join()
    assert watched.result == ("ended", False)


def test_what_swallows_it_is_broken_again_and_known_as_broken():
    def code(watched):
        watched.dog.current = ("turn",)
        times = 0
        while times < 3:
            try:
                busy(watched)
            except Broken:
                times += 1
                seen.release()
        return times, end(watched)

    seen = threading.Semaphore(0)
    watched = Watched()
    thread = watched.run(code)
    watched.look()
    for _ in range(3):
        watched.look(10.1)
        assert seen.acquire(timeout=20)
    thread.join()
    assert watched.result == (3, True)


def test_what_is_not_raised_yet_when_the_code_ends_is_taken_back(monkeypatch):
    """The exception is asked for while the thread is in C; it returns, and ends before it could be raised."""
    taken = []
    real = module._raise_in_thread

    def raises(target, exception):
        if exception is module._NOTHING:
            taken.append("taken back")
            real(target, exception)
        else:
            taken.append("asked for")  # and not raised: as if the thread had not come to it

    monkeypatch.setattr(module, "_raise_in_thread", raises)
    watched = Watched()
    thread = watched.run(spin)
    watched.look()
    watched.look(11)
    watched.go_on = True
    thread.join()
    assert taken == ["asked for", "taken back"]
    assert watched.result == ("ended", True)


def test_what_has_ended_is_not_broken_and_neither_is_what_follows(monkeypatch):
    """The thread looks, is held up, and what it saw has ended when it goes on."""
    raised = []
    monkeypatch.setattr(module, "_raise_in_thread", lambda _target, exception: raised.append(exception))
    dog = Watchdog(
        ManualClock(),
        warn_after=1.0,
        break_after=1.0,
        exception=Broken,
        may_break=lambda _current: True,
        named=lambda *_: None,
    )
    first = dog.current = ("first",)
    dog.current = None
    assert not dog.is_alert
    dog.current = ("second",)
    dog._break(first)
    assert raised == []
    dog.current = None
    assert dog.is_alert
    assert not dog.finish()
    assert not dog.is_alert


def test_short_things_one_after_the_other_are_no_stall():
    clock = ManualClock()
    named = []
    dog = Watchdog(
        clock,
        warn_after=2.0,
        break_after=None,
        exception=Broken,
        may_break=lambda _current: True,
        named=lambda *args: named.append(args),
    )
    for n in range(10):
        dog.current = ("turn", n)
        dog.look()
        clock.advance(1.5)
        dog.current = None
        assert not dog.is_alert
    assert named == []
    assert dog.stalled == 0


def test_imports_are_not_counted(tmp_path, monkeypatch):
    (tmp_path / "slow_module_of_a_test.py").write_text("import builtins\nbuiltins._everact_test_hook()\n")
    monkeypatch.syspath_prepend(tmp_path)
    held = threading.Event()

    def hook():
        watched.inside.set()
        assert held.wait(20)

    monkeypatch.setattr("builtins._everact_test_hook", hook, raising=False)

    def code(watched):
        watched.dog.current = ("turn",)
        import slow_module_of_a_test  # noqa: F401

        return end(watched)

    watched = Watched()
    thread = watched.run(code)
    for _ in range(4):
        watched.look(20)
    held.set()
    thread.join()
    assert watched.named == []
    assert watched.result is False


def test_its_thread_ends_with_it():
    dog = Watchdog(
        ManualClock(),
        warn_after=2.0,
        break_after=10.0,
        exception=Broken,
        may_break=lambda _current: True,
        named=lambda *_: None,
    )
    assert dog.period == 0.5
    dog.start()
    assert "everact-watchdog" in {thread.name for thread in threading.enumerate()}
    dog.close()
    assert "everact-watchdog" not in {thread.name for thread in threading.enumerate()}
