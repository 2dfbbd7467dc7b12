"""Wrong calls through clients and blocking runtimes: each is an error for both type checkers."""

from dataclasses import dataclass

from everact import Client, activity, blocking, workflow


@dataclass
class Order:
    item: str


@activity.defn
async def charge(order: Order) -> int:
    return len(order.item)


@workflow.defn
class Orders:
    @workflow.run
    async def run(self, order: Order) -> int:
        return await charge(order)

    @workflow.signal
    def approve(self, tracking: str) -> None:
        pass

    @workflow.query
    def status(self) -> str:
        return ""

    @workflow.update
    def rename(self, to: str) -> int:
        return len(to)


async def from_another_process(client: Client) -> None:
    with Client.connect("unix:x"):  # type: ignore[attr-defined]
        pass
    await Client.connect(5)  # type: ignore[arg-type]
    await Client.connect("unix:x", timeout="5")  # type: ignore[arg-type]
    await Client.connect("unix:x", retries=5)  # type: ignore[call-arg]
    await client.spawn(Orders, "tea")  # type: ignore[arg-type]
    await client.spawn(Orders, Order("tea"), if_running="hope")  # type: ignore[call-overload]
    await client.ref("w", Orders).signal(Orders.approve, 5)  # type: ignore[arg-type]
    await client.list_workflows(limit="3")  # type: ignore[arg-type]
    client.list_workflows(next_page_token=3)  # type: ignore[arg-type]
    await client.ref("w", Orders).start_update(Orders.rename, 5)  # type: ignore[arg-type]
    await client.ref("w", Orders).start_update(Orders.rename, "x", wait_for_stage="soon")  # type: ignore[call-overload]
    client.activity_handle()  # type: ignore[call-overload]
    client.activity_handle("token", workflow_id="w")  # type: ignore[call-overload]
    await client.activity_handle("token").fail("no")  # type: ignore[arg-type]


def without_an_event_loop() -> None:
    blocking.Runtime(5)  # type: ignore[arg-type]
    blocking.Runtime("j", workflows=[charge])  # type: ignore[list-item]
    blocking.Runtime("j", door="yes")  # type: ignore[arg-type]
    blocking.Runtime("j", colour="red")  # type: ignore[call-arg]
    blocking.Client.connect(5)  # type: ignore[arg-type]


def talk(side: blocking.Runtime) -> None:
    order = side.ref("w", Orders)
    side.spawn(Orders, "tea")  # type: ignore[arg-type]
    side.spawn(Orders, Order("tea"), colour="red")  # type: ignore[call-overload]
    order.signal(Orders.approve, 5)  # type: ignore[arg-type]
    order.signal(Orders.status)  # type: ignore[arg-type, call-arg]
    order.query(Orders.status, 5)  # type: ignore[arg-type]
    order.ask(Orders.rename, 5)  # type: ignore[arg-type]
    order.start_update(Orders.rename, 5)  # type: ignore[arg-type]
    side.activity_handle()  # type: ignore[call-overload]
    order.result(timeout="5")  # type: ignore[arg-type]
    number: int = order.query(Orders.status)  # type: ignore[assignment]
    print(number)
