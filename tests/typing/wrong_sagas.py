"""Sagas that both type checkers must refuse; each line is marked with the code of mypy's error."""

from right_sagas import Booking, book, cancel, clean, release, reserve

from everact import workflow


async def steps(saga: workflow.Saga, city: str) -> None:
    await saga.run(book, 5)  # type: ignore[arg-type]
    await saga.run(book)  # type: ignore[arg-type, call-arg]
    await saga.run(book, city, compensate=release)  # type: ignore[arg-type]
    await saga.run(book, city, compensate=clean)  # type: ignore[arg-type]
    await saga.run(reserve, 7, compensate=cancel)  # type: ignore[arg-type]
    await saga.run(reserve, 7, compensate=release, compensate_args=(7,))  # type: ignore[arg-type]
    await saga.run(reserve, 7, compensate=release, compensate_args=(7, 8))  # type: ignore[arg-type]
    await saga.run(reserve, 7, compensate_args=(7, "late"))  # type: ignore[call-overload]
    await saga.run(reserve, 7, compensate=reserve, compensate_unknown=True)  # type: ignore[call-overload]
    await saga.run(reserve, 7, compensate=5)  # type: ignore[call-overload]
    await saga.run(reserve, 7, priority="high")  # type: ignore[call-overload]
    await saga.run(reserve, 7, optional="yes")  # type: ignore[call-overload]
    await saga.run(reserve, 7, retries=3)  # type: ignore[call-overload]
    await saga.run(reserve, 7, compensate=reserve, compensate_options={"retries": 3})  # type: ignore[call-overload]
    saga.run(reserve, 7).cancel()  # type: ignore[attr-defined]
    number: int = await saga.run(reserve, 7, optional=True)  # type: ignore[assignment]
    booking: Booking = await saga.run(reserve, 7)  # type: ignore[arg-type]
    saga.add_compensation(cancel)  # type: ignore[arg-type]
    saga.add_compensation(cancel, 7)  # type: ignore[arg-type]
    saga.add_compensation(release, 7)  # type: ignore[arg-type]
    saga.add_compensation(release, 7, "late", priority="high")  # type: ignore[arg-type]
    print(number, booking)


def sagas() -> None:
    workflow.saga(5)  # type: ignore[arg-type]
    workflow.saga(on_compensation_failure="ignore")  # type: ignore[arg-type]
    workflow.saga(compensation_retry=3)  # type: ignore[arg-type]
    workflow.saga(parallel="yes")  # type: ignore[arg-type]
    workflow.saga(order=5)  # type: ignore[arg-type]
    workflow.saga(order={"a": 5})  # type: ignore[dict-item]
    with workflow.saga():  # type: ignore[attr-defined]
        pass
