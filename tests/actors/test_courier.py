"""How messages travel from run to run: through codecs, failed commits, damage and restarts."""

import asyncio
import logging

import pytest
from support.codecs import encrypted
from support.hosting import hosted, kinds, settled, until
from support.sending_workflows import Other, Sender, Waits

from everact import workflow
from everact.actors import receiving
from everact.exceptions import (
    ExternalWorkflowError,
)
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.journal.outbox import Post, put_aside
from everact.journal.tables import Table
from everact.journal.verify import verify
from everact.payloads import PayloadCodec


@workflow.defn
class Starter:
    @workflow.run
    async def run(self, kind: str, workflow_id: str, if_running: str, if_closed: str) -> str:
        try:
            other = await workflow.start_detached(
                kind, id=workflow_id, if_running=if_running, if_closed=if_closed, memo={"by": "me"}
            )
        except ExternalWorkflowError as error:
            return f"{type(error.__cause__).__name__}: {error}"
        assert other.id == workflow_id
        return other.run_id


# --- how they travel


async def test_queries_and_validators_send_nothing():
    @workflow.defn
    class Sneaky:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.query
        def ask(self, what: str) -> str:
            other = workflow.get_external_workflow_handle("w")
            calls = {
                "signal": lambda: other.signal("tell", "x"),
                "cancel": other.cancel,
                "child": lambda: workflow.execute_child_workflow(Other),
                "detached": lambda: workflow.start_detached(Other),
            }
            try:
                calls[what]()
            except Exception as error:
                return type(error).__name__
            return "sent"

    async with hosted(MemoryJournal(), Sneaky, Other) as runtime:
        handle = await runtime.spawn(Sneaky)
        for what in ("signal", "cancel", "child", "detached"):
            assert await handle.query(Sneaky.ask, what) == "ReadOnlyError"
        assert len(await handle.fetch_history()) == 2


@workflow.defn
class Chatty:
    @workflow.run
    async def run(self) -> str:
        child = await workflow.start_child_workflow(Waits, id="kid", memo={"secret": "memo"})
        await child.signal(Waits.tell, "top secret")
        await child.signal(Waits.stop)
        return ", ".join(await child)


class Slow(PayloadCodec):
    """Answers when the test lets it."""

    inline_limit = 0

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def encode(self, payloads):
        if any(b"answer" in payload.data for payload in payloads):
            self.waiting += 1
            await self.gate.wait()
        return list(payloads)

    async def decode(self, payloads):
        return list(payloads)


async def test_with_encryption_nothing_of_a_message_is_readable_in_the_journal():
    journal = MemoryJournal()
    sent = []
    original = Post.__call__

    def spy(post, changes):
        sent.extend(message.body for message in post.sent)
        original(post, changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Post, "__call__", spy)
        async with hosted(journal, Chatty, Waits, codecs=[encrypted()]) as runtime:
            assert await runtime.execute(Chatty) == "top secret"
    assert len(sent) > 5
    assert not any(b"secret" in body and b"top" in body for body in sent)


async def test_with_slow_codecs_messages_to_others_do_not_wait():
    slow = Slow()

    @workflow.defn
    class Busy:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        def ask(self, word: str) -> str:
            self.words.append(word)
            return f"answer {word}"

        @workflow.signal
        def tell(self, word: str) -> None:
            self.words.append(word)

        @workflow.query
        def all(self) -> list[str]:
            return self.words

    @workflow.defn
    class Two:
        @workflow.run
        async def run(self) -> str:
            busy = workflow.get_external_workflow_handle("busy", Busy)
            idle = workflow.get_external_workflow_handle("idle", Busy)
            first = busy.signal(Busy.tell, "one")
            second = busy.signal(Busy.tell, "two")
            await idle.signal(Busy.tell, "free")
            await first
            await second
            return "both"

    async with hosted(MemoryJournal(), Busy, Two, codecs=[slow]) as runtime:
        busy = await runtime.spawn(Busy, id="busy")
        idle = await runtime.spawn(Busy, id="idle")
        courier = runtime._shard.courier
        courier._is_blocked = True
        two = await runtime.spawn(Two, id="two")
        await until(lambda: len(runtime._shard.outbox.pending(0)) == 3)
        # The update's answer is on its way through the codec: its record must be the next one.
        slow.gate.clear()
        update = asyncio.ensure_future(busy.ask(Busy.ask, "zero"))
        await until(lambda: slow.waiting)
        courier._is_blocked = False
        runtime._shard.go_on()
        while (await idle.describe()).history_length < 3:
            await asyncio.sleep(0)
        assert courier._kept
        slow.gate.set()
        assert await update == "answer zero"
        assert await two.result() == "both"
        words = await busy.query(Busy.all)
        assert words == ["zero", "one", "two"]
        assert await idle.query(Busy.all) == ["free"]
        assert runtime._shard.outbox.pending(0) == []


async def test_a_message_that_cannot_be_read_is_put_aside_and_the_others_arrive(caplog):
    journal = MemoryJournal()
    async with hosted(journal, Sender, Waits) as runtime:
        await runtime.spawn(Waits, id="w")
        runtime._shard.courier.stop()
        for number, word in enumerate(("one", "two", "three")):
            await runtime.spawn(Sender, "signal", "w", None, word, id=f"s-{number}")
        await settled(runtime)
        store = runtime._shard.store
        one, two, _three = store_rows(store)
        await settled(runtime)
        store.append(
            store.position,
            [],
            lambda changes: changes.put(Table.OUTBOX, [(one[0], b"\0" * 30), (two[0], garbled(two[1]))]),
        )
    with caplog.at_level(logging.ERROR, "everact.runtime"):
        async with hosted(journal, Sender, Waits) as runtime:
            assert await runtime.ref("s-2").result() == "delivered"
            await settled(runtime)
            with runtime._shard.store.view() as tables:
                assert [sequence for _, sequence, _ in put_aside(tables)] == [1, 2]
            assert [m.body for m in runtime._shard.outbox.pending(0)] == []
    texts = [record.getMessage() for record in caplog.records if "put aside" in record.getMessage()]
    assert len(texts) == 2
    assert texts[0].startswith(
        "message 1 between runs cannot be taken in, and is put aside in the journal (`everact journal messages` "
        "shows it): JournalCorruptError: message 1 to shard 0: the checksum of a row differs"
    )
    assert "message 2 between runs cannot be taken in, and is put aside in the journal" in texts[1]
    assert "DecodeError" in texts[1]
    caplog.clear()
    sound = MemoryStore(journal)  # a later version may read what this one cannot
    sound.append(
        sound.position, [], lambda changes: changes.put(Table.FACTS, [(aside_key(sound, 1), two[1])])
    )
    async with hosted(journal, Sender, Waits) as runtime:
        assert await runtime.ref("s-1").result() == "delivered"
        await settled(runtime)
        with runtime._shard.store.view() as tables:
            assert [aside.sequence for aside in put_aside(tables)] == [1]
    assert len([text for text in caplog.messages if "put aside" in text]) == 1


def aside_key(store, which):
    with store.view() as tables:
        keys = [key for key, _ in tables.scan(Table.FACTS) if key.startswith(b"aside ")]
    return keys[which]


def store_rows(store):
    return list(store.rows(Table.OUTBOX))


def garbled(row):
    from everact.journal.row_checksum import sealed, unsealed

    return sealed(unsealed(row)[:8] + b"\xc1")


async def test_a_run_is_not_purged_before_its_messages_are_taken_in():
    async with hosted(MemoryJournal(), Starter, Waits) as runtime:
        runtime._shard.courier._is_blocked = True
        handle = await runtime.spawn(Starter, "Waits", "w", "fail", "allow", id="s")
        await settled(runtime)
        await handle.terminate()
        key = runtime._shard.index.find("s").key
        assert runtime._shard.outbox.has_sent(key)
        assert await runtime.purge(workflow_id="s") == 0
        runtime._shard.courier._is_blocked = False
        runtime._shard.go_on()
        await until(lambda: not runtime._shard.outbox.has_sent(key))
        await settled(runtime)
        assert await runtime.purge(workflow_id="s") == 1


async def test_after_a_failed_commit_each_message_is_taken_in_once():
    class Broken(Exception):
        pass

    for point in ("outbox.send.before", "outbox.apply.before", "outbox.written", "journal.commit.after"):
        for at in range(1, 9):
            passes = 0

            def fail():
                nonlocal passes
                passes += 1
                if passes == at:
                    raise Broken

            async with hosted(MemoryJournal(), Chatty, Waits) as runtime:
                with armed(point, fail):
                    while True:
                        try:
                            chatty = await runtime.spawn(
                                Chatty, id="c", if_running="attach", if_closed="attach"
                            )
                            break
                        except Exception:
                            await settled(runtime)
                    while True:
                        try:
                            assert await chatty.result(timeout=10) == "top secret"
                            break
                        except Exception as error:
                            assert type(error).__name__ == "CommitUnknownError", error
                    kid = runtime.ref("kid")
                    assert kinds(await kid.fetch_history()).count("SignalReceived") == 2
                    history = kinds(await chatty.fetch_history())
                    assert history.count("ChildStarted") == history.count("ChildCompleted") == 1
                    assert history.count("MessageDelivered") == 2
                    await settled(runtime)
                    assert runtime._shard.outbox.pending(0) == []
                    assert await runtime.count_workflows() == 2


async def test_a_message_that_was_half_applied_is_for_people_and_never_applied_again(monkeypatch):
    journal = MemoryJournal()

    @workflow.defn
    class Target:
        def __init__(self) -> None:
            self.got: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await workflow.wait_condition(lambda: "end" in self.got)
            return self.got

        @workflow.signal
        def tell(self, word: str) -> None:
            self.got.append(word)

    @workflow.defn
    class Sender:
        @workflow.run
        async def run(self) -> None:
            await workflow.get_external_workflow_handle("target").signal("tell", "once")

    def broken(*_args):
        raise RuntimeError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(receiving.Receiving, "_tell", broken)
        async with hosted(journal, Target, Sender) as runtime:
            await runtime.spawn(Target, id="target")
            await runtime.spawn(Sender, id="sender")
            await settled(runtime)
    for _ in range(2):
        async with hosted(journal, Target, Sender) as runtime:
            await settled(runtime)
    report = verify(MemoryStore(journal))
    (said,) = [str(problem) for problem in report.problems]
    assert "put aside: signal 'tell' for 'target' from run " in said
    assert "Everact itself failed while it was taken in, perhaps in part: no start tries it again" in said
    async with hosted(journal, Target, Sender) as runtime:
        target = runtime.ref("target", Target)
        await target.signal("tell", "end")
        assert await target.result() == ["once", "end"]
