"""Attempts that a client completes: by token or ids, once, with the errors of the runtime."""

import json
from dataclasses import dataclass

import pytest
from support.door_calls import ask, lose_answers
from support.door_workflows import WORKFLOWS, Asks, Order, asks
from support.hosting import kinds, until

from everact import ApplicationError, Client, Runtime, activity, workflow
from everact.exceptions import (
    ActivityCancelledError,
    ActivityNotPendingError,
    PayloadEncodeError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)

TOKENS = []


@activity.defn(name="leaves")
async def leaves() -> Order:
    TOKENS.append(activity.info().task_token)
    activity.raise_complete_async()


@workflow.defn
class Leaves:
    @workflow.run
    async def run(self) -> Order:
        return await leaves()


@pytest.fixture
async def both(tmp_journal):
    """A runtime, and a client of it."""
    TOKENS.clear()
    async with (
        Runtime(tmp_journal, workflows=[*WORKFLOWS, Leaves], activities=[asks, leaves], grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        yield runtime, client


async def asked(runtime, client, kind=Asks, attempt=1):
    """A run whose activity waits for somebody outside."""
    handle = await client.spawn(kind, id="a", if_running="attach")
    await until(
        lambda: (
            (pending := runtime._shard.find("a").state.activities.get(1))
            and pending.deadline
            and pending.attempt == attempt
        )
    )
    return handle


async def test_whoever_has_the_token_completes_the_attempt(both):
    runtime, client = both
    handle = await asked(runtime, client, Leaves)
    outside = client.activity_handle(TOKENS[0])
    assert repr(outside) == repr(runtime.activity_handle(TOKENS[0]))
    await outside.heartbeat("half way", 50)
    await outside.complete(Order("tea", 7))
    assert await handle.result() == Order("tea", 7)
    for side in (runtime, client):
        with pytest.raises(
            ActivityNotPendingError, match="does not wait for attempt 1 of activity command 1"
        ):
            await side.activity_handle(TOKENS[0]).complete(Order("tea", 7))


async def test_ids_mean_the_present_attempt_and_a_failure_leads_to_the_next(both):
    runtime, client = both
    handle = await asked(runtime, client)
    await client.activity_handle(workflow_id="a", command=1).fail(
        ApplicationError("no stock", {"item": "tea"}, type="NoStock")
    )
    await asked(runtime, client, attempt=2)
    (pending,) = (await handle.describe()).pending_activities
    assert (pending.attempt, pending.last_failure) == (2, "NoStock: no stock")
    await client.activity_handle(workflow_id="a", command=1, run_id=handle.run_id).fail(
        ApplicationError("never", type="NoStock", non_retryable=True)
    )
    with pytest.raises(WorkflowFailedError) as caught:
        await handle.result()
    assert caught.value.__cause__.caused_by("NoStock")


async def test_an_exception_of_any_class_fails_the_attempt_as_in_the_program(both):
    runtime, client = both
    handle = await asked(runtime, client)
    try:
        raise OSError("line is dead") from ValueError("noise")
    except OSError as error:
        await runtime.activity_handle(workflow_id="a", command=1).fail(error)
        await asked(runtime, client, attempt=2)
        await client.activity_handle(workflow_id="a", command=1).fail(error)
    failures = [e.event.failure for e in await handle.fetch_history() if e.kind == "AttemptFailed"]
    here, there = [(f.type, f.bases, f.message, f.trace, f.cause.message, f.kind) for f in failures]
    assert here == there


async def test_a_run_that_is_cancelled_is_told_by_the_heartbeat(both):
    runtime, client = both
    handle = await asked(runtime, client)
    outside = client.activity_handle(workflow_id="a", command=1)
    await outside.heartbeat()
    await handle.cancel("late")
    for side in both:
        with pytest.raises(ActivityCancelledError, match="has asked activity 'asks' to stop: end the work"):
            await side.activity_handle(workflow_id="a", command=1).heartbeat("so far")
    await outside.report_cancelled()
    with pytest.raises(WorkflowCancelledError):
        await handle.result()


@pytest.mark.parametrize("by", ["token", "ids"])
@pytest.mark.parametrize("verb", ["complete", "fail", "report_cancelled", "heartbeat"])
async def test_a_call_whose_answer_is_lost_is_done_once(both, monkeypatch, verb, by):
    runtime, client = both
    handle = await asked(runtime, client, Leaves)
    outside = (
        client.activity_handle(TOKENS[0])
        if by == "token"
        else client.activity_handle(workflow_id="a", command=1)
    )
    seen = lose_answers(monkeypatch, "/activities/")
    what = {"complete": (Order("tea"),), "fail": (ValueError("no"),), "heartbeat": ("so far",)}.get(verb, ())
    await getattr(outside, verb)(*what)
    assert len(seen) == (2 if verb == "heartbeat" else 3)
    found = kinds(await handle.fetch_history())
    ends = ("ActivityCompleted", "AttemptFailed", "ActivityFailed", "ActivityCancelled")
    assert sum(found.count(kind) for kind in ends) == (verb != "heartbeat")


async def test_a_repeat_is_no_yes_when_the_attempt_has_ended_in_another_way(both):
    runtime, client = both
    handle = await asked(runtime, client, Leaves)
    await runtime.activity_handle(TOKENS[0]).complete(Order("coffee"))
    await handle.result()
    for verb, what in (
        ("complete", {"result": {"item": "tea"}}),
        ("fail", {"failure": {"type": "X"}}),
        ("report-cancelled", {}),
    ):
        body = json.dumps({"task_token": TOKENS[0], "repeated": True, **what})
        status, answer = await ask(client._connection.journal, "POST", f"/v1/activities/{verb}", body)
        assert (status, answer["error"]["type"]) == (409, "ActivityNotPendingError")
    body = json.dumps({"task_token": TOKENS[0], "repeated": True, "result": {"item": "coffee"}})
    assert await ask(client._connection.journal, "POST", "/v1/activities/complete", body) == (200, {})


async def test_a_mistyped_field_of_a_result_is_refused_with_its_path(both):
    runtime, client = both
    handle = await asked(runtime, client, Leaves)
    mistyped = {"item": "tea", "cuont": 2}
    with pytest.raises(PayloadEncodeError, match="Order has no such field") as caught:
        await client.activity_handle(TOKENS[0]).complete(mistyped)
    assert (caught.value.where, caught.value.path) == ("result of activity leaves", "$.cuont")
    body = {"task_token": TOKENS[0], "result": mistyped}
    where = client._connection.journal
    status, answer = await ask(where, "POST", "/v1/activities/complete", json.dumps(body))
    assert (status, answer["error"]["type"]) == (400, "PayloadEncodeError")
    body["extra_fields"] = True
    assert await ask(where, "POST", "/v1/activities/complete", json.dumps(body)) == (200, {})
    assert await handle.result() == Order("tea")


async def test_a_result_of_a_newer_class_is_taken(both):
    @dataclass
    class NewerOrder:
        item: str
        count: int = 1
        colour: str = "green"

    runtime, client = both
    handle = await asked(runtime, client, Leaves)
    await client.activity_handle(TOKENS[0]).complete(NewerOrder("tea", 3))
    assert await handle.result() == Order("tea", 3)


async def test_a_result_that_does_not_fit_is_refused_as_in_the_program(both):
    runtime, client = both
    await asked(runtime, client)
    texts = []
    for side in both:
        with pytest.raises(PayloadEncodeError) as caught:
            await side.activity_handle(workflow_id="a", command=1).complete(7)
        texts.append(str(caught.value).partition(":")[0])
        with pytest.raises(PayloadEncodeError, match="has no stored form here"):
            await side.activity_handle(workflow_id="a", command=1).heartbeat(object())
        with pytest.raises(TypeError, match=r"fail\(\) takes the error itself, not 'no'"):
            await side.activity_handle(workflow_id="a", command=1).fail("no")
        with pytest.raises(WorkflowNotFoundError):
            await side.activity_handle(workflow_id="none", command=1).complete(7)
        for given in ((), ("token", "w")):
            with pytest.raises(TypeError):
                side.activity_handle(*given)
        with pytest.raises(ValueError, match="'x' is no task token"):
            side.activity_handle("x")
    assert texts[0] == texts[1]
    assert (await runtime.ref("a").describe()).pending_activities[0].attempt == 1


DEEP = {"type": "X"}
for _ in range(40):
    DEEP = {"type": "X", "cause": DEEP}


@pytest.mark.parametrize(
    ("verb", "body", "says"),
    [
        ("complete", {"result": 7}, "the body of the call needs a task token, or workflow_id and command"),
        ("complete", {"task_token": "x", "result": 7}, "'x' is no task token"),
        ("complete", {"workflow_id": "a", "command": 1}, "missing required field `result`"),
        ("complete", {"workflow_id": "a", "command": 0, "result": 1}, "command must be 1 or more, not 0"),
        ("complete", {"workflow_id": "a", "command": 1, "task_token": "x", "result": 1}, "token or the ids, not both"),
        ("fail", {"workflow_id": "a", "command": 1, "failure": {}}, "does not fit: "),
        ("fail", {"workflow_id": "a", "command": 1, "failure": {"type": 7}}, "does not fit: "),
        ("fail", {"workflow_id": "a", "command": 1, "failure": {"type": "X", "kind": "odd"}}, "its kind must be one"),
        ("fail", {"workflow_id": "a", "command": 1, "failure": DEEP}, "at most 200 errors, 20 deep, are kept"),
        (
            "fail",
            {"workflow_id": "a", "command": 1, "failure": {"type": "X", "details": [{"encoding": "pickle"}]}},
            "a detail must have one of the encodings json, null, raw, tagged",
        ),
        (
            "fail",
            {"workflow_id": "a", "command": 1, "failure": {"type": "X", "coded": {"encoding": "aes"}}},
            "its kind must be one of",
        ),
        ("heartbeat", {"workflow_id": "a", "command": 1, "detail": []}, "unknown field `detail`"),
    ],
)  # fmt: skip
async def test_what_is_no_proper_call_is_refused_and_changes_nothing(both, verb, body, says):
    runtime, client = both
    handle = await asked(runtime, client)
    before = len(await handle.fetch_history())
    status, answer = await ask(client._connection.journal, "POST", f"/v1/activities/{verb}", json.dumps(body))
    assert status == 400
    assert says in answer["error"]["message"]
    assert len(await handle.fetch_history()) == before
