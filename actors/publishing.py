"""Values that a run publishes: read from outside without running its code, whatever has become of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..journal import events as ev
from ..journal.errors import PayloadEncodeError
from ..journal.payloads import Payload, PayloadConverter
from .asyncio_forbidden import read_only
from .context import current_instance
from .errors import PublishLimitError
from .interceptors import PublishInput
from .options import check_text

if TYPE_CHECKING:
    from .workflow_instance import WorkflowInstance

#: Each snapshot of a run carries all that it has published: so many keys, and so many bytes together.
MOST_KEYS = 100
MOST_BYTES = 256 << 10
LONGEST_KEY = 200


def publish(key: str, value: Any) -> None:
    """Let a value be read from outside once the turn is durable, without running the run's code.

    ``handle.published(key)`` and ``describe`` show it on running, paused, held, quarantined and ended runs alike. Meant
    for what people look at, such as progress; a run has up to 100 keys, and 256 KiB of values together.

    Args:
        key: Its name, up to 200 bytes.
        value: The new value; None takes it out.

    Raises:
        TypeError: The key is no string.
        ValueError: The key is empty, too long, or not valid Unicode.
        PayloadEncodeError: The value has no stored form.
        PublishLimitError: There are too many keys, or the values are too large together.
        ReadOnlyError: It is called in a query or a validator.
    """
    instance = current_instance("publish()")
    outbound = instance.outbound
    if outbound is None or instance.read_only or instance.loop.discarded:
        record_published(instance, key, value)
    else:
        outbound.publish(PublishInput(key, value))


def record_published(instance: WorkflowInstance, key: str, value: Any) -> None:
    """Check a value, and record that the run publishes it; arguments as of ``publish``."""
    if instance.read_only:
        raise read_only("publish()")
    check_key(key)
    payload = None if value is None else encode_any(instance._converter, value, f"value published as {key!r}")
    if instance.loop.discarded:
        instance.loop.refuse()
    else:
        _record(instance, key, payload)


def _record(instance: WorkflowInstance, key: str, payload: Payload | None) -> None:
    sizes = instance.published
    if sizes is None:
        sizes = instance.published = {}
    if payload is None:
        sizes.pop(key, None)
    else:
        size = len(payload.data)
        total = size + sum(sizes.values()) - sizes.get(key, 0)
        keys = len(sizes) + (key not in sizes)
        if keys > MOST_KEYS or total > MOST_BYTES:
            raise PublishLimitError(key, keys, total)
        sizes[key] = size
    instance._outputs.append(ev.ValuePublished(key, payload))


def published_before(instance: WorkflowInstance, event: ev.ValuePublished) -> None:
    """Take note of what code has published that a replay does not run again."""
    if instance.published is None:
        instance.published = {}
    if event.value is None:
        instance.published.pop(event.key, None)
    else:
        instance.published[event.key] = len(event.value.data)


def check_key(key: object) -> str:
    """Return a proper key of a published value.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, too long, or not valid Unicode.
    """
    text = check_text("the key of a published value", key)
    size = len(text.encode())
    if size > LONGEST_KEY:
        raise ValueError(
            f"the key of a published value may have up to {LONGEST_KEY} bytes, {text[:30]!r}... has {size}"
        )
    return text


def encode_any(converter: PayloadConverter, value: Any, where: str) -> Payload:
    """Encode a value of which no hint says what it should be: by what it is."""
    try:
        return converter.encode(value, where=where)
    except PayloadEncodeError:
        return converter.encode(value, type(value), where=where)
