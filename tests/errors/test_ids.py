"""Workflow ids and addresses: what is allowed, what is refused and how, and that no two ids are mixed up."""

import pytest
from support.bad_input import memory_runtime, nothing_written, refuses

from everact import Address, Runtime, workflow
from everact.exceptions import AddressError, WorkflowNotFoundError


@workflow.defn
class Keeps:
    @workflow.run
    async def run(self, text: str) -> str:
        return text

    @workflow.query
    def nothing(self) -> None:
        pass


GOOD = [
    "a",
    "order-42",
    "with space",
    "a/b/c",
    "/",
    "//",
    "..",
    "a%2Fb",
    "a?b#c",
    "\0",
    "a\0b",
    "\n",
    "ü" * 500,
    "日" * 333,
    "😀" * 250,
    "x" * 510,
    "x" * 511,
    "x" * 512,
    "x" * 511 + "/",
    "x" * 511 + "\0",
    "x" * 511 + "\0\0",
    "x" * 999,
    "x" * 1000,
    "x" * 999 + "y",
]
BAD = [
    ("", "must not be empty", "such as 'order-42'"),
    ("x" * 1001, "may have up to 1000 bytes", "has 1001"),
    ("ü" * 501, "may have up to 1000 bytes", "has 1002"),
    ("日" * 334, "may have up to 1000 bytes", "has 1002"),
    ("😀" * 251, "may have up to 1000 bytes", "has 1004"),
    ("\ud800", "not valid Unicode", "'\\ud800'"),
    ("order\udfff", "not valid Unicode", "order"),
]


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
async def test_every_allowed_id_is_a_run_of_its_own(kind, tmp_journal):
    def runtime():
        return memory_runtime([Keeps]) if kind == "memory" else Runtime(tmp_journal, workflows=[Keeps])

    async with runtime() as first:
        handles = [await first.spawn(Keeps, f"{n}", id=name) for n, name in enumerate(GOOD)]
        assert [await handle.result() for handle in handles] == [f"{n}" for n in range(len(GOOD))]
        assert await first.count_workflows() == len(GOOD)
    if kind == "lmdb":
        async with runtime() as second:
            for n, name in enumerate(GOOD):
                handle = second.ref(name, Keeps)
                assert await handle.result() == f"{n}"
                assert (await second.ref(handle.address, Keeps).describe()).workflow_id == name


@pytest.mark.parametrize(("name", "why", "detail"), BAD, ids=[ascii(name)[:12] for name, _, _ in BAD])
async def test_a_bad_id_is_refused(name, why, detail):
    async with memory_runtime([Keeps]) as runtime:
        with nothing_written(runtime), refuses(ValueError, "workflow id", why, detail):
            await runtime.spawn(Keeps, "x", id=name)
        with nothing_written(runtime), refuses(ValueError, "workflow id", why, detail):
            await runtime.execute(Keeps, "x", id=name)
        with refuses(ValueError, "workflow id", why, detail):
            runtime.ref(name)


@pytest.mark.parametrize("name", [42, None, b"order", ["order"], 4.2, True])
async def test_an_id_that_is_no_text_is_refused(name):
    async with memory_runtime([Keeps]) as runtime:
        with nothing_written(runtime), refuses(TypeError, "a workflow id must be a str, not", repr(name)):
            await runtime.spawn(Keeps, "x", id=name)
        with refuses(TypeError, "a workflow id must be a str, not", repr(name)):
            runtime.ref(name)


async def test_the_text_of_a_refused_long_id_is_short():
    async with memory_runtime([Keeps]) as runtime:
        with refuses(ValueError, "x") as caught:
            await runtime.spawn(Keeps, "x", id="x" * 10_000_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["", 5, "x" * 1001, "\ud800", b"r"])
async def test_a_bad_request_id_is_refused(name):
    kind = ValueError if isinstance(name, str) else TypeError

    @workflow.defn
    class Waits:
        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def hint(self) -> None:
            pass

        @workflow.update
        def change(self) -> None:
            pass

    async with memory_runtime([Waits]) as runtime:
        with nothing_written(runtime), refuses(kind, "request id"):
            await runtime.spawn(Waits, request_id=name)
        handle = await runtime.spawn(Waits, id="w", request_id="x" * 1000)
        with nothing_written(runtime), refuses(kind, "request id"):
            await handle.tell(Waits.hint, request_id=name)
        with nothing_written(runtime), refuses(kind, "request id"):
            await handle.ask(Waits.change, request_id=name)
        await handle.tell(Waits.hint, request_id=None)


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_an_address_gives_back_its_parts(name):
    from everact.actors.addresses import parse_address

    for address in (Address("local", name), Address("a/b c", name, "run/1")):
        assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "everact://",
        "everact://local",
        "everact://local/",
        "everact:///order",
        "everact://local//run",
        "everact://local/order/",
        "everact://local/order/run/more",
    ],
)
async def test_a_bad_address_shows_what_one_looks_like(text):
    async with memory_runtime([Keeps]) as runtime:
        with refuses(AddressError, repr(text), "must look like everact://cluster/workflow-id[/run-id]"):
            runtime.ref(text)


@pytest.mark.parametrize(
    ("part", "why"), [("x" * 1001, "has 1001"), ("%ED%A0%80", "not valid"), ("%ff", "not valid")]
)
async def test_an_address_with_an_impossible_id(part, why):
    async with memory_runtime([Keeps]) as runtime:
        with pytest.raises(ValueError, match=why):
            runtime.ref(f"everact://local/{part}")


async def test_an_address_of_another_cluster():
    async with memory_runtime([Keeps], name="shop") as runtime:
        with refuses(AddressError, "'everact://local/order' is of cluster 'local'; this is 'shop'"):
            runtime.ref("everact://local/order")


async def test_an_address_with_a_run_id_of_another_workflow():
    async with memory_runtime([Keeps]) as runtime:
        first = await runtime.spawn(Keeps, "a", id="first")
        await runtime.spawn(Keeps, "b", id="second")
        wrong = runtime.ref(str(Address("local", "second", first.run_id)), Keeps)
        for call in (
            wrong.result,
            wrong.describe,
            wrong.fetch_history,
            wrong.cancel,
            wrong.terminate,
            lambda: wrong.query(Keeps.nothing),
        ):
            with (
                nothing_written(runtime),
                refuses(
                    WorkflowNotFoundError,
                    f"no workflow 'second' with run id '{first.run_id}' in this journal",
                    "start it first, or check the id",
                ),
            ):
                await call()
