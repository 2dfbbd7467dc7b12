"""Wrong calls around steps: each marked line is an error under mypy and under pyright."""

from everact import workflow


@workflow.defn
class Stepped:
    @workflow.signal
    def approve(self, tracking: str) -> None:
        pass

    @workflow.transient
    def by_name(self) -> dict[str, int]:
        return {}

    @workflow.step
    async def plain(self, cents: int) -> str:
        return str(cents)

    @workflow.step(retries=3)  # type: ignore[call-overload, untyped-decorator]
    async def no_such_option(self) -> None:
        pass

    @workflow.step(retry="3")  # type: ignore[call-overload, untyped-decorator]
    async def no_policy(self) -> None:
        pass

    @workflow.step(timeout="5")  # type: ignore[call-overload, untyped-decorator]
    async def no_duration(self) -> None:
        pass

    @workflow.step(optional=1.5)  # type: ignore[call-overload, untyped-decorator]
    async def no_flag(self) -> None:
        pass

    @workflow.step(on_error="mend")  # type: ignore[call-overload, untyped-decorator]
    async def no_method(self) -> None:
        pass

    @workflow.run
    async def run(self) -> None:
        await self.plain("5")  # type: ignore[arg-type]
        await self.plain()  # type: ignore[call-arg]
        await self.plain(5, note="x")  # type: ignore[call-arg]
        number: int = await self.plain(5)  # type: ignore[assignment]
        _name: int = self.by_name["a"] + "b"  # type: ignore[operator]
        await workflow.wait_for_signal(5)  # type: ignore[call-overload]
        await workflow.wait_for_signal(Stepped.approve, timeout="5")  # type: ignore[call-overload]
        (_one, _two) = await workflow.wait_for_signal(Stepped.approve)  # type: ignore[misc]
        await workflow.race(5, self.plain(1))  # type: ignore[call-overload]
        async with workflow.deadline("soon"):  # type: ignore[arg-type]
            print(number)
