"""Messages that no run has received yet: they are listed, and go out and in with their runs."""

import weakref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.journals import entries_of, opened
from support.moved_journals import rows_of, spoil_page

from everact.journal import child_events as ce
from everact.journal import events as ev
from everact.journal import importing
from everact.journal.errors import ImportRefusedError
from everact.journal.event_base import ParentRecord
from everact.journal.export import export_runs
from everact.journal.failures import Failure
from everact.journal.importing import import_runs
from everact.journal.lmdb_store import LmdbStore
from everact.journal.memory_store import MemoryStore
from everact.journal.message_document import VERSION, message_document, message_of_document
from everact.journal.messages_under_way import messages_under_way
from everact.journal.outbox import Aside, Outbox, Post, put_aside, row_of
from everact.journal.payloads import NULL, Payload
from everact.journal.run_messages import Answer, StartRun, ToRun, decode_message, encode_message
from everact.journal.store import STARTS_RUN, Entry
from everact.journal.tables import PAIR, Table
from everact.journal.verify import verify

PARENT = ParentRecord("a", "run-a", 3)
SIGNAL = ToRun("b", "", ev.SignalReceived("tell", (Payload("json", b"1"),)), None, PARENT)
START = StartRun(ev.WorkflowStarted("c", "run-c", "Child", parent=PARENT), awaits_start=True)
NEWS = Answer("a", "run-a", ce.ChildCompleted(1, "run-x", NULL))
MESSAGES = [SIGNAL, START, NEWS]


def journal(*sent, open_runs=("a", "b"), aside=(), taken=()):
    """A store with open runs; the first one has sent these messages."""
    store = MemoryStore()
    for key, name in enumerate(open_runs, 1):
        start = ev.Received((ev.WorkflowStarted(name, f"run-{name}", "T"),))
        store.append(store.position, [Entry(key, 1, STARTS_RUN, key, ev.encode_record(start))])
    send(store, *sent, aside=aside, taken=taken)
    return store


def send(store, *sent, aside=(), taken=()):
    outbox = Outbox(store)
    post = Post(0)
    post.sent = [outbox.new(0, 1, encode_message(body)) for body in sent]
    post.aside = [Aside(0, m.sequence, row_of(1, m.body)) for m in post.sent if m.sequence in aside]
    gone = [*aside, *taken]
    if gone:
        post.taken = {0: gone}
    store.append(store.position, [], post)


def exported(store, *ids, damaged=pytest.fail, moved=pytest.fail):
    return list(export_runs(store, ids, left_out=pytest.fail, damaged=damaged, moved=moved))


def through_json(document):
    return msgspec.json.decode(msgspec.json.encode(document))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
parents = st.none() | st.builds(ParentRecord, texts, texts, st.integers(0, 2**60))
payloads = st.lists(
    st.builds(Payload, st.sampled_from(["json", "raw"]), st.binary(max_size=5)), max_size=2
).map(tuple)
starts = st.builds(ev.WorkflowStarted, texts, texts, texts, args=payloads, parent=parents)
to_run = st.one_of(
    st.builds(ev.SignalReceived, texts, payloads),
    st.builds(ev.CancelRequested, texts),
    st.builds(ev.WorkflowTerminated, texts),
)
news = st.one_of(
    st.builds(ce.ChildFailed, st.integers(1, 9), texts, st.builds(Failure, type=texts, message=texts)),
    st.builds(ce.MessageDelivered, st.integers(1, 9), texts),
)
bodies = st.one_of(
    st.builds(StartRun, starts, parents, texts, texts, st.booleans()),
    st.builds(ToRun, texts, texts, to_run, parents, parents),
    st.builds(Answer, texts, texts, news),
)


@given(bodies, st.none() | st.tuples(texts, texts))
def test_any_message_comes_back_to_the_byte(body, sender):
    again = message_of_document(through_json(message_document(sender, body)))
    assert again == (sender, body)
    assert encode_message(again[1]) == encode_message(body)


def test_what_was_received_is_not_listed_and_what_was_put_aside_comes_first():
    store = journal(SIGNAL, START, NEWS, aside=[2], taken=[3])
    found = list(messages_under_way(store))
    assert [(m.sequence, m.is_aside, m.body) for m in found] == [(2, True, START), (1, False, SIGNAL)]
    assert [str(m) for m in found] == [
        "message 2, put aside: start of a Child for 'c' from run 1",
        "message 1, on its way: signal 'tell' for 'b' from run 1",
    ]
    report = verify(store)
    assert report.is_sound
    assert (report.waiting, report.put_aside, report.messages) == (1, 1, found)


def test_each_message_says_what_it_is():
    cancel = ToRun("b", "", ev.CancelRequested("enough"))
    end = ToRun("b", "", ev.WorkflowTerminated("enough"))
    store = journal(NEWS, cancel, end)
    assert [m.what for m in messages_under_way(store)] == ["ChildCompleted", "cancel", "terminate"]
    assert [m.receiver for m in messages_under_way(store)] == [("a", "run-a"), ("b", ""), ("b", "")]


def test_a_message_that_cannot_be_read_is_a_problem_until_it_is_gone():
    store = journal(SIGNAL, SIGNAL)
    store.append(
        store.position, [], lambda changes: changes.put(Table.OUTBOX, [(PAIR.pack(0, 1), b"\0" * 20)])
    )
    (problem,) = verify(store).problems
    assert str(problem).startswith("table 'outbox': the row ")
    post = Post(0)
    post.taken = {0: [1]}
    post.aside = [Aside(0, 1, b"\0" * 20)]
    store.append(store.position, [], post)
    (problem,) = verify(store).problems
    assert str(problem) == (
        "table 'facts': message 1, put aside, cannot be read: message 1 to shard 0: the checksum of a row differs: "
        "`everact journal messages --discard` takes it out"
    )
    damage = []
    assert len(exported(store, damaged=damage.append)) == 3
    assert [str(one) for one in damage] == [
        "table 'facts': message 1: message 1 to shard 0: the checksum of a row differs"
    ]


def test_messages_go_out_and_in_with_their_runs():
    store = journal(*MESSAGES, aside=[2])
    documents = [through_json(document) for document in exported(store)]
    assert [document["format"] for document in documents] == ["everact run"] * 2 + ["everact message"] * 3
    assert documents[2]["sender"] == {"workflow_id": "a", "run_id": "run-a"}
    mine = ToRun("x", "", ev.CancelRequested())
    other = journal(mine, open_runs=["x"])
    assert import_runs(other, documents) == (2, 2, 3)
    assert verify(other).is_sound
    pending = Outbox(other).pending(0)
    assert [(m.sequence, m.run_key, decode_message(m.body)) for m in pending] == [
        (1, 1, mine),
        (2, 2, START),  # put aside there, so older than the others
        (3, 2, SIGNAL),
        (4, 2, NEWS),
    ]
    assert Outbox(other).has_sent(2)
    with other.view() as tables:
        assert put_aside(tables) == []
    assert [through_json(document) for document in exported(other, "a", "b", "c")] == documents


def test_of_chosen_runs_those_go_out_that_they_have_sent_or_will_receive():
    store = journal(SIGNAL, START, NEWS)
    assert [one.get("kind") for one in exported(store, "a")] == [None, "to run", "start", "answer"]
    assert [one.get("kind") for one in exported(store, "b")] == [None, "to run"]
    assert [one.get("kind") for one in exported(store, "run-c")] == ["start"]


def test_the_sender_of_a_message_may_be_gone():
    store = journal(NEWS, open_runs=["b"])
    documents = exported(store, "a")
    documents[0]["sender"] = {"workflow_id": "gone", "run_id": "run-gone"}
    other = MemoryStore()
    import_runs(other, documents)
    assert Outbox(other).pending(0)[0].run_key == 0
    documents[0]["sender"] = None
    import_runs(other, documents)
    assert [message.run_key for message in Outbox(other).pending(0)] == [0, 0]


def test_an_export_during_which_messages_move_says_so():
    for change in (
        lambda store: send(store, NEWS),
        lambda store: send(store, taken=[1]),
        lambda store: send(store, NEWS, taken=[1, 2]),
    ):
        store, moved = journal(SIGNAL), []
        steps = export_runs(
            store, left_out=pytest.fail, damaged=pytest.fail, moved=lambda seen=moved: seen.append(True)
        )
        next(steps)
        change(store)
        for _ in steps:
            pass
        assert moved == [True]


def test_messages_of_others_that_move_while_closed_runs_are_exported_do_no_harm():
    store = journal(SIGNAL)
    end = ev.Turn((), (ev.WorkflowTerminated("enough"),))
    start = ev.Received((ev.WorkflowStarted("c", "run-c", "T"),))
    store.append(store.position, entries_of([(8, start), (9, end)], 3))
    steps = export_runs(store, ["c"], left_out=pytest.fail, damaged=pytest.fail, moved=pytest.fail)
    next(steps)
    send(store, NEWS)
    assert len(list(steps)) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(version=VERSION + 1), "an exported message has version 2, this Everact reads 1"),
        (lambda d: d.update(kind="dance"), "an exported message is damaged: KeyError"),
        (lambda d: d.pop("sender"), "an exported message is damaged: KeyError"),
        (lambda d: d.update(sender={"workflow_id": 1, "run_id": "r"}), "is damaged: ValidationError"),
        (lambda d: d["message"]["event"].update(tag="zz"), "is damaged: KeyError"),
    ],
)
def test_a_damaged_message_is_refused_and_nothing_is_written(change, says):
    documents = [through_json(one) for one in exported(journal(SIGNAL))]
    change(documents[-1])
    store = MemoryStore()
    with pytest.raises(ImportRefusedError, match=says):
        import_runs(store, documents)
    assert store.position.sequence == 1


# --- imports read twice


class Document(dict):
    """One that can be counted."""


class Given:
    """Documents that are made when they are asked for."""

    def __init__(self, documents):
        self.texts = [msgspec.json.encode(document) for document in documents]
        self.alive = weakref.WeakSet()
        self.most = self.times = 0

    def __iter__(self):
        self.times += 1
        for text in self.texts:
            document = Document(msgspec.json.decode(text))
            self.alive.add(document)
            self.most = max(self.most, len(self.alive))
            yield document
            del document


def test_an_import_holds_one_document_at_a_time(monkeypatch):
    monkeypatch.setattr(importing, "MESSAGES_AT_ONCE", 4)
    names = [f"w{number}" for number in range(50)]
    Document.__hash__ = object.__hash__
    given = Given(exported(journal(*[SIGNAL] * 10, open_runs=names)))
    store = MemoryStore()
    assert import_runs(store, given) == (50, 50, 10)
    assert (given.times, given.most) == (2, 2)
    assert len(Outbox(store).pending(0)) == 10


def test_what_can_be_read_once_only_is_refused():
    with pytest.raises(TypeError, match=r"import_runs\(\) reads the documents twice: give a list of them"):
        import_runs(MemoryStore(), iter([]))


def test_documents_that_change_between_the_two_readings_are_named():
    documents = exported(journal(open_runs=["a", "b", "c"]))

    class Changing:
        times = 0

        def __iter__(self):
            self.times += 1
            return iter(documents if self.times == 1 else documents[1:])

    store = MemoryStore()
    text = "what is imported has changed while it was read, after 0 of 3 runs were written: import it into a new dir"
    with pytest.raises(ImportRefusedError, match=text):
        import_runs(store, Changing())
    assert store.position.sequence == 1


def test_keys_that_are_none_are_no_messages():
    store = journal(SIGNAL, aside=[1])
    store.append(
        store.position,
        [],
        lambda changes: (
            changes.put(Table.FACTS, [(b"aside x", b""), (b"aside " + b"y" * 40, b"")]),
            changes.put(Table.OUTBOX, [(b"short", b"")]),
        ),
    )
    assert [message.sequence for message in messages_under_way(store)] == [1]


def test_what_waits_is_listed_although_the_page_that_says_what_was_received_is_damaged(tmp_journal):
    store = LmdbStore(tmp_journal, durability="os")
    start = ev.Received((ev.WorkflowStarted("a", "run-a", "T"),))
    store.append(store.position, [Entry(1, 1, STARTS_RUN, 1, ev.encode_record(start))])
    send(store, SIGNAL, NEWS, START, taken=[3])
    store.close()
    (key,) = [key for key in dict(rows_of(tmp_journal, "facts")) if key.startswith(b"watermark")]
    spoil_page(tmp_journal, "facts", key)
    with opened(tmp_journal) as reader:
        report = verify(reader)
        assert any(problem.table == "facts" for problem in report.problems)
        assert [message.sequence for message in report.messages] == [1, 2, 3]
        damage = []
        found = export_runs(reader, left_out=damage.append, damaged=damage.append, moved=pytest.fail)
        assert [one["format"] for one in found] == ["everact run"] + ["everact message"] * 3
        assert damage
