"""Failures as data."""

import msgspec
import pytest

from everact.journal.failures import (
    MESSAGE_LIMIT,
    TEXT_LIMIT,
    TRACE_LIMIT,
    Failure,
    class_names,
    clean,
    format_trace,
    full_text,
    safe_message,
    shorten,
)


class Base(Exception):
    pass


class Derived(Base):
    pass


def test_a_class_is_known_by_its_full_names_and_those_of_its_bases():
    assert class_names(Derived) == (
        f"{__name__}.Derived",
        f"{__name__}.Base",
        "builtins.Exception",
        "builtins.BaseException",
    )


def test_a_failure_answers_to_bare_and_dotted_names_of_class_and_bases():
    failure = Failure(type="Derived", bases=class_names(Derived))
    assert {"Derived", "Base", "Exception", f"{__name__}.Base", "builtins.Exception"} <= failure.names()
    assert "derived" not in failure.names()
    assert "object" not in failure.names()


def test_a_chosen_type_name_counts_beside_the_class():
    assert {"CardDeclined", "ApplicationError"} <= Failure("CardDeclined", ("x.ApplicationError",)).names()


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 5000])
def test_long_texts_keep_both_ends(size):
    text = "a" * (size // 2) + "b" * (size - size // 2)
    short = shorten(text, 100)
    if size <= 100:
        assert short == text
    else:
        assert short.startswith("a" * 50) and short.endswith("b" * 50)
        assert f"{size - 100} characters left out" in short


def test_a_str_that_raises_does_not_hide_the_error():
    class Rude(Exception):
        def __str__(self):
            raise KeyError("no")

    assert safe_message(Rude()) == "<its __str__ raised KeyError>"


def test_messages_and_traces_are_bounded():
    assert len(safe_message(Base("x" * 10 * MESSAGE_LIMIT))) < MESSAGE_LIMIT + 100
    try:
        raise Base("y" * 10 * TRACE_LIMIT)
    except Base as error:
        trace = format_trace(error)
    assert len(trace) < TRACE_LIMIT + 100
    assert trace.startswith("Traceback")


def test_lone_surrogates_do_not_make_a_failure_unstorable():
    assert clean("a\ud800b") == "a?b"
    msgspec.msgpack.encode(Failure(type="E", message=safe_message(Base("\udfff"))))


def test_a_trace_is_of_one_error_only():
    error = Derived("outer")
    error.__cause__ = Base("inner")
    assert "outer" in format_trace(error)
    assert "inner" not in format_trace(error)


def test_a_failure_with_causes_and_groups_comes_back_equal():
    failure = Failure(
        type="Group", group=(Failure(type="A", cause=Failure(type="B")), Failure(type="C")), next_delay=5
    )
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure)
    assert again == failure


def test_a_text_that_is_no_plain_string_becomes_one():
    class Text(str):
        __slots__ = ()

        def encode(self, *args):
            raise RuntimeError

    assert type(clean(Text("a\ud800"))) is str


def test_a_str_that_raises_no_exception_does_not_hide_the_error_but_an_interrupt_passes():
    class Rude(Exception):
        def __str__(self):
            raise self.args[0]

    assert safe_message(Rude(SystemExit())) == "<its __str__ raised SystemExit>"
    with pytest.raises(KeyboardInterrupt):
        safe_message(Rude(KeyboardInterrupt()))


def test_a_trace_does_not_read_what_hangs_on_its_error():
    def read(self):
        raise AssertionError("read")

    cause = type("Cause", (Exception,), {"__str__": read})()
    member = type("Member", (Exception,), {"__str__": read})()
    try:
        raise ExceptionGroup("g", [member]) from cause
    except ExceptionGroup as group:
        trace = format_trace(group)
    assert trace.rstrip().endswith("ExceptionGroup: g (1 sub-exception)")
    assert "test_failures.py" in trace


def test_an_error_whose_trace_cannot_be_made_has_none():
    class Odd(Exception):
        @property
        def __suppress_context__(self):
            raise RuntimeError

    assert format_trace(Odd()) == ""


def test_the_text_of_a_tree_is_in_reading_order_and_bounded():
    failure = Failure(
        "Top",
        trace="top trace\n",
        group=(Failure("A", message="a", cause=Failure("B")), Failure("C")),
        cause=Failure("D", group=(Failure("E"),)),
    )
    assert full_text(failure).split("\n") == [
        "top trace",
        "member 1: A: a",
        "caused by: B",
        "member 2: C",
        "caused by: D",
        "member 1: E",
    ]
    assert [one.type for one in failure.tree()] == ["Top", "A", "B", "C", "D", "E"]
    wide = Failure("Top", group=tuple(Failure("M", trace="x" * TRACE_LIMIT) for _ in range(50)))
    text = full_text(msgspec.structs.replace(wide, cause=Failure("Root")))
    assert len(text) < TEXT_LIMIT + 100
    assert text.startswith("Top") and text.endswith("caused by: Root")
