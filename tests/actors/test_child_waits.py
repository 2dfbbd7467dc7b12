"""Waiting for many children, and looking at them."""

import asyncio
from datetime import timedelta

import pytest
from support.child_workflows import Double, Fails, Waits, status

from everact import activity, workflow
from everact.actors.listing import WorkflowPage
from everact.exceptions import (
    WorkflowCancelledError,
)
from everact.testing import TestEnvironment
from everact.workflow_texts import ListPrinter, print_description

# --- waiting for many


@workflow.defn
class Together:
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    @workflow.run
    async def run(self, strategy: object, timeout: float | None) -> list[list[str]]:
        chosen = workflow.first(int(strategy)) if isinstance(strategy, int) else strategy
        children = [await workflow.start_child_workflow(Waits, id=f"kid-{n}") for n in range(3)]
        children.append(await workflow.start_child_workflow(Fails, "no", id="fails"))
        try:
            outcomes = await workflow.wait_for_children(children, chosen, timeout=timeout)
        except TimeoutError as error:
            return [[str(error)]]
        return [[outcome.id, outcome.status, str(outcome.result or outcome.error)] for outcome in outcomes]


async def outcome_of(strategy, stopped, timeout=None):
    async with TestEnvironment(workflows=[Together, Waits, Fails]) as env:
        parent = await env.spawn(Together, strategy, timeout)
        await env.sleep(0)
        for number in stopped:
            kid = env.ref(f"kid-{number}", Waits)
            await kid.signal(Waits.tell, "x")
            await kid.signal(Waits.stop)
            await env.sleep(0)  # one after the other
        return [tuple(row) for row in await parent.result()]


fails = ("fails", "failed", "child workflow 'fails' (Fails) failed: Broken: no")
got = ("completed", "['x']")


@pytest.mark.crash_everywhere(limit=12)
async def test_waiting_for_all_children():
    assert await outcome_of("all", (2, 0, 1)) == [
        *((f"kid-{n}", *got) for n in range(3)),
        fails,
    ]


async def test_waiting_for_children_with_other_strategies():
    assert await outcome_of("any", ()) == [*((f"kid-{n}", "running", "None") for n in range(3)), fails]
    assert await outcome_of(2, (1,)) == [
        ("kid-0", "running", "None"),
        ("kid-1", *got),
        ("kid-2", "running", "None"),
        fails,
    ]
    assert await outcome_of("all", (1,), 60) == [
        ("wait_for_children: 2 of 4 children have ended within 60 s, 4 were waited for",)
    ]


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        ("some", "strategy must be 'all', 'any' or workflow.first(n), not 'some'"),
        (5, "wait_for_children is to wait for 5 of 4 children"),
        (0, "workflow.first: the number of children must be 1 or more, not 0"),
    ],
)
async def test_a_strategy_that_cannot_be(strategy, text):
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            children = [await workflow.start_child_workflow(Double, n) for n in range(4)]
            try:
                chosen = workflow.first(strategy) if isinstance(strategy, int) else strategy
                await workflow.wait_for_children(children, chosen)
            except ValueError as error:
                return str(error)
            return "never"

    async with TestEnvironment(workflows=[Parent, Double]) as env:
        assert await env.execute(Parent) == text


async def test_the_cancel_of_who_waits_for_children_reaches_them():
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> None:
            kinds = ("wait_cancellation_completed", "abandon", "try_cancel")
            children = [
                await workflow.start_child_workflow(
                    Waits, id=kind, cancellation_type=kind, parent_close_policy="abandon"
                )
                for kind in kinds
            ]
            await workflow.wait_for_children(children, timeout=timedelta(hours=1))

    async with TestEnvironment(workflows=[Parent, Waits]) as env:
        parent = await env.spawn(Parent)
        await env.sleep(0)
        await parent.cancel()
        with pytest.raises(WorkflowCancelledError):
            await parent.result()
        await env.sleep(0)
        assert await status(env, "wait_cancellation_completed") == "cancelled"
        assert await status(env, "try_cancel") == "cancelled"
        assert await status(env, "abandon") == "running"


async def test_a_child_with_activities_lives_through_evictions_of_its_parent():
    @activity.defn
    async def slow(n: int) -> str:
        raise NotImplementedError

    @workflow.defn
    class Child:
        @workflow.run
        async def run(self, n: int) -> str:
            return f"{await slow(n)} {n}"

    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> list[str]:
            return await asyncio.gather(*(workflow.execute_child_workflow(Child, n) for n in range(5)))

    async with TestEnvironment(workflows=[Parent, Child], max_cached_workflows=1) as env:
        called = env.mock_activity(slow, returns="through", delay=60)
        assert await env.execute(Parent) == [f"through {n}" for n in range(5)]
        assert called.call_count == 5


async def test_lists_and_descriptions_show_who_belongs_to_whom(capsys):
    @workflow.defn
    class Parent:
        @workflow.run
        async def run(self) -> str:
            info = workflow.info()
            assert info.parent is None
            for n in range(5):
                await workflow.start_child_workflow(
                    Waits, id=f"kid-{n}", parent_close_policy="request_cancel"
                )
            await workflow.execute_child_workflow(Child, id="child")
            return "done"

    @workflow.defn
    class Child:
        @workflow.run
        async def run(self) -> None:
            parent = workflow.info().parent
            assert parent is not None
            await workflow.wait_condition(lambda: parent.workflow_id != "p")

    async with TestEnvironment(workflows=[Parent, Child, Waits]) as env:
        parent = await env.spawn(Parent, id="p")
        for _ in range(2):
            await env.restart()
            await env.sleep(0)
            await env.ref("kid-1").pause()
            seen = await parent.describe()
            assert (seen.parent, seen.parent_id, seen.child_count) == (None, None, 6)
            assert [child.workflow_id for child in seen.children] == [
                *(f"kid-{n}" for n in range(5)),
                "child",
            ]
            assert [child.status for child in seen.children][:3] == ["running", "paused", "running"]
            first = seen.children[0]
            assert (first.workflow_type, first.close_policy, first.command) == ("Waits", "request_cancel", 1)
            assert first.run_id == (await env.ref("kid-0").describe()).run_id
            assert seen.waiting_on == "child kid-0; child kid-1 (paused); child kid-2; 3 more children"
            child = await env.ref("child").describe()
            assert (child.parent.workflow_id, child.parent.run_id) == ("p", seen.run_id)
            parents = {run.workflow_id: run.parent_id for run in await env.runtime.list_workflows()}
            assert parents == {"p": None, "child": "p", **{f"kid-{n}": "p" for n in range(5)}}
            print_description(seen)
            out = capsys.readouterr().out
            assert "children:         6 open\nchild:            kid-0 (Waits, running)\n" in out
            print_description(child)
            assert f"parent:           p (run {seen.run_id})\n" in capsys.readouterr().out
            page = WorkflowPage(await env.runtime.list_workflows(), None)
            ListPrinter(100, None, as_json=False).page(page)
            assert " parent " in capsys.readouterr().out


async def test_a_child_that_was_given_up_by_the_code_that_waited_has_an_outcome_with_an_error():
    @workflow.defn
    class GivesUp:
        @workflow.run
        async def run(self) -> list[str]:
            child = await workflow.start_child_workflow(Waits, id="kid")
            try:
                await asyncio.wait_for(child.result(), 1)
            except TimeoutError:
                pass
            (outcome,) = await workflow.wait_for_children([child])
            assert outcome.error is not None
            return [outcome.status, outcome.error.status, str(outcome.error), str(outcome.error.__cause__)]

    async with TestEnvironment(workflows=[GivesUp, Waits]) as env:
        result = await env.execute(GivesUp)
        run_id = (await env.ref("kid").describe()).run_id
    assert result == [
        "cancelled",
        "cancelled",
        "child workflow 'kid' (Waits) was cancelled: by the code that waited for it",
        f"workflow 'kid' (run {run_id}) was cancelled: by the code that waited for it",
    ]
