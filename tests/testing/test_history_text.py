"""A history as text: the same in each run of a test, readable, and compared with a committed file."""

import pytest
from support.corpus import GOOD, OLD
from support.corpus_workflows import ACTIVITIES, WORKFLOWS, Feature
from support.hosting import hosted

from everact import ApplicationError, activity, workflow
from everact.exceptions import EveractError, ImportRefusedError
from everact.journal.memory_store import MemoryJournal
from everact.testing import assert_history_matches, history_text


@activity.defn
async def charge(order: dict[str, int]) -> str:
    raise ApplicationError("no money", non_retryable=True)


@workflow.defn
class Order:
    @workflow.run
    async def run(self, order: dict[str, int]) -> str:
        ticket = str(workflow.uuid4())
        workflow.publish("ticket", ticket)
        workflow.publish("ticket again", f"{ticket} of {workflow.info().run_id}")
        await workflow.sleep(0.0015)
        return await charge(order)


async def run_once(workflow_id=None):
    options = {} if workflow_id is None else {"id": workflow_id}
    async with hosted(MemoryJournal(), Order, activities=[charge]) as runtime:
        handle = await runtime.spawn(Order, {"tea": 2}, **options)
        with pytest.raises(EveractError):
            await handle.result()
        return await handle.fetch_history()


FAILED = (
    "ActivityError: activity 'charge' failed after 1 attempt (non-retryable error): ApplicationError: no money, "
    "caused by ApplicationError: no money"
)
TEXT = f"""\
1 > WorkflowStarted workflow_id="<workflow>" run_id="<run>" workflow_type="Order" args=[{{"tea": 2}}]
2 < ValuePublished key="ticket" value="<id 1>"
3 < ValuePublished key="ticket again" value="<id 1> of <run>"
4 < TimerStarted command=1 duration="0.0015 s"
5 < RandomDrawn streams=["uuid4"]
6 > TimerFired command=1
7 < ActivityScheduled command=2 activity_type="charge" args=[{{"tea": 2}}]
8 > ActivityFailed command=2 attempt=1 failure="{FAILED}" retry_state="non-retryable error"
9 < WorkflowFailed failure="{FAILED}"
"""


async def test_it_is_the_same_in_each_run():
    assert history_text(await run_once()) == TEXT
    chosen = history_text(await run_once("order-7"))
    assert chosen == history_text(await run_once()).replace("<workflow>", "order-7")


def test_what_a_run_says_of_itself_in_other_words_is_replaced_too():
    text = history_text(GOOD / "children.json")
    assert 'workflow_id="children"' in text
    assert '"parent"' not in text.partition("\n")[0]
    text = history_text(GOOD / "headers.json")
    assert 'headers=[{"who": "ann"}]' in text
    text = history_text(GOOD / "continued-2.json")
    assert '"continued_run_id": "<id 1>"' in text


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(GOOD.glob("*.json"))])
def test_it_names_no_machine_no_time_and_no_line_of_code(path):
    text = history_text(path)
    assert text.count("\n") == text.rstrip().count("\n") + 1
    for word in ("/checkout", "/python", "/tmp", ".py:", "Traceback", '"at"', "digest", "deadline"):
        assert word not in text


def test_fields_that_came_later_change_nothing():
    for path in OLD.glob("sparse-*.json"):
        assert history_text(path) == history_text(GOOD / f"{path.stem.removeprefix('sparse-')}.json")


def test_a_damaged_history_has_no_text():
    with pytest.raises(ImportRefusedError, match="activity 2, which was never started"):
        history_text(GOOD.parent / "bad" / "damaged-gap.json")


# --- compared with a file


async def test_a_file_is_made_on_request_and_then_compared(tmp_path, monkeypatch):
    path = tmp_path / "below" / "order.txt"
    history = await run_once()
    with pytest.raises(
        AssertionError, match="there is no file .* run the test once with EVERACT_UPDATE_HISTORIES=1"
    ):
        assert_history_matches(history, path)
    assert not path.exists()
    assert_history_matches(history, path, update=True)
    assert path.read_text() == history_text(history)
    assert_history_matches(await run_once(), path)
    path.write_text(path.read_text().replace("0.0015 s", "0.002 s"))
    with pytest.raises(AssertionError) as caught:
        assert_history_matches(history, path)
    text = str(caught.value)
    assert (
        '\n-4 < TimerStarted command=1 duration="0.002 s"\n+4 < TimerStarted command=1 duration="0.0015 s"\n'
        in text
    )
    monkeypatch.setenv("EVERACT_UPDATE_HISTORIES", "1")
    with pytest.raises(AssertionError):
        assert_history_matches(history, path, update=False)
    assert_history_matches(history, path)
    assert path.read_text() == history_text(history)


async def test_two_lives_of_each_feature_have_one_text():
    """Except where the order of what happens beside each other is left to chance."""

    async def live():
        texts = {}
        async with hosted(MemoryJournal(), *WORKFLOWS, activities=ACTIVITIES) as runtime:
            for kind in (
                "activity",
                "retries",
                "steps",
                "saga",
                "published",
                "side_effect",
                "memo",
                "fails",
                "named",
            ):
                handle = await runtime.spawn(Feature, kind, id=kind)
                try:
                    await handle.result()
                except EveractError:
                    pass
                texts[kind] = history_text(await handle.fetch_history())
        return texts

    assert await live() == await live()
