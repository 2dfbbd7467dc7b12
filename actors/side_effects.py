"""What workflow code writes into its history besides commands: results of functions not called again, and its memo."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from ..journal import events as ev
from .asyncio_forbidden import read_only
from .context import current_instance
from .errors import NondeterminismError
from .failure_conversion import error_of, failure_of
from .interceptors import SideEffectInput, UpsertMemoInput
from .memos import decode_memo, encode_memo
from .places import user_place
from .typing import R

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance


def memo() -> dict[str, Any]:
    """The run's memo: what its start gave it, and ``upsert_memo`` since."""
    instance = current_instance("memo()")
    return memo_of(instance) if instance.outbound is None else instance.outbound.memo()


def memo_of(instance: WorkflowInstance) -> dict[str, Any]:
    """The memo of a run."""
    return decode_memo(instance._converter, list(instance.memo), list(instance.memo.values()))


def upsert_memo(values: Mapping[str, Any]) -> None:
    """Give notes of the run new values; ``describe`` shows them once the turn is durable.

    Args:
        values: By name; None takes a note out, the others stay.

    Raises:
        TypeError: It is no mapping, or a name is no string.
        PayloadEncodeError: A value has no stored form.
    """
    instance = current_instance("upsert_memo()")
    outbound = instance.outbound
    if outbound is None or instance.read_only or instance.loop.discarded:
        record_memo(instance, values)
    else:
        outbound.upsert_memo(UpsertMemoInput(values))


def side_effect(fn: Callable[[], R], *, result_type: type[R] | None = None) -> R:
    """Call a function that replay must not call again: its result is in the journal with this turn.

    It is durable before anything that the turn decides leaves the process; if the turn is lost in a crash, it is called
    again in the next one. For what is quick and cannot fail halfway, such as a look at the environment; the rest is the
    work of activities.

    Args:
        fn: A plain function without parameters.
        result_type: What it returns; default its annotation. The code gets a copy, live as in replay.

    Raises:
        TypeError: It is no plain function.
        PayloadEncodeError: The result has no stored form.
        ApplicationError: The function raised; recorded, so that replay raises it too.
    """
    instance = current_instance("side_effect()")
    outbound = instance.outbound
    if outbound is None or instance.read_only or instance.loop.discarded:
        result: R = run_side_effect(instance, fn, result_type)
    else:
        place = user_place() if instance.replaying else ""
        result = outbound.side_effect(SideEffectInput(fn, _hint(fn, result_type), place))
    return result


def run_side_effect(instance: WorkflowInstance, fn: Callable[[], Any], hint: Any, place: str = "") -> Any:
    """Call a function once in the life of the run; what it gave is in the journal with this turn.

    The live run, too, gets what the journal holds: a copy of the value, or the error as data.

    Args:
        instance: The run.
        fn: The function.
        hint: What it returns; None is what its annotation says.
        place: In a replay, where the user's code has called; empty for where this is called.
    """
    converter = instance._converter
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        raise TypeError(
            f"side_effect needs a plain function without parameters, not {fn!r}: what awaits is an activity"
        )
    if instance.read_only:
        raise read_only("side_effect()")
    if instance.loop.discarded:
        return instance.loop.refuse()
    command = instance.next_command
    instance.next_command = command + 1
    hint = _hint(fn, hint)
    if instance.replaying:
        instance.places[command] = place or user_place()
        event = instance.recorded.get(command)
        if event is None:  # the code has changed: replay finds out where
            instance._outputs.append(ev.SideEffectRecorded(command))
            instance.has_diverged = True
            raise NondeterminismError(
                "something else", f"command {command}: a side effect", "side_effect()", "not known here", 0
            )
    else:
        event = _called(instance, command, fn, hint)
    instance._outputs.append(event)
    if event.failure is not None:
        raise error_of(event.failure, converter)
    assert event.result is not None
    return converter.decode(event.result, hint, where="result of side_effect()")


def _called(
    instance: WorkflowInstance, command: int, fn: Callable[[], Any], hint: Any
) -> ev.SideEffectRecorded:
    instance.read_only = True  # the function may look at the run, and decides nothing
    try:
        value = fn()
    except Exception as error:  # noqa: BLE001  (the user's; the code gets it, now and in every replay)
        return ev.SideEffectRecorded(command, failure=failure_of(error, instance._converter))
    finally:
        instance.read_only = False
    result = instance._converter.encode(value, hint, where="result of side_effect()")
    return ev.SideEffectRecorded(command, result)


def _hint(fn: Callable[[], Any], hint: Any) -> Any:
    """What the value is: as the call says, or the function's annotation."""
    if hint is not None:
        return hint
    try:
        return get_type_hints(fn).get("return", Any)
    except Exception:  # noqa: BLE001  (names that are not there at run time, or no function at all)
        return Any


def record_memo(instance: WorkflowInstance, memo: Mapping[str, Any]) -> None:
    """Give notes of the run new values; None takes one out."""
    if instance.read_only:
        raise read_only("upsert_memo()")
    if not isinstance(memo, Mapping):
        raise TypeError(f"upsert_memo needs a dict of names and values, not {memo!r}")
    names, values = encode_memo(
        instance._converter, {name: value for name, value in memo.items() if value is not None}
    )
    gone, _ = encode_memo(instance._converter, {name: None for name, value in memo.items() if value is None})
    if instance.loop.discarded or not memo:
        return
    event = ev.MemoUpserted(names + gone, values)
    instance._outputs.append(event)
    remember(instance, event)


def remember(instance: WorkflowInstance, event: ev.MemoUpserted) -> None:
    """Let notes of the run have the values that it has decided."""
    memo = dict(instance.memo)
    memo.update(zip(event.names, event.memo, strict=False))
    for name in event.names[len(event.memo) :]:
        memo.pop(name, None)
    instance.memo = memo
