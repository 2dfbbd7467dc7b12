"""Condition and Semaphore with the wake-ups of CPython 3.13 on every supported Python.

The other primitives (Lock, Event, Queue, Barrier) wake in one order everywhere; Barrier waits on a Condition.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from typing import Any


async def wait_condition(condition: Any) -> bool:
    """``Condition.wait``: a waiter that ends with an error wakes the next, which may be the one it was meant for."""
    if not condition.locked():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = condition._get_loop().create_future()
    condition.release()
    try:
        try:
            condition._waiters.append(waiter)
            try:
                await waiter
            finally:
                condition._waiters.remove(waiter)
        finally:
            await _acquire_again(condition)
    except BaseException:
        for other in condition._waiters:
            if not other.done():
                other.set_result(False)
                break
        raise
    return True


async def _acquire_again(condition: Any) -> None:
    """Hold the lock on the way out, however often that is cancelled; the last cancel is raised after it."""
    cancelled: CancelledError | None = None
    while True:
        try:
            await condition.acquire()
            break
        except CancelledError as error:
            cancelled = error
    try:
        if cancelled is not None:
            raise cancelled
    finally:
        del cancelled  # exceptions hold frames


async def acquire_semaphore(semaphore: Any) -> bool:
    """``Semaphore.acquire``: whoever leaves the queue wakes all that the counter allows."""
    if not semaphore.locked():
        semaphore._value -= 1
        return True
    if semaphore._waiters is None:
        semaphore._waiters = deque()
    waiter = semaphore._get_loop().create_future()
    semaphore._waiters.append(waiter)
    try:
        try:
            await waiter
        finally:
            semaphore._waiters.remove(waiter)
    except CancelledError:
        if waiter.done() and not waiter.cancelled():
            semaphore._value += 1  # it was let in, and gives its place back
        raise
    finally:
        _wake_waiters(semaphore)
    return True


def _wake_waiters(semaphore: Any) -> None:
    for waiter in semaphore._waiters:
        if semaphore._value <= 0:
            return
        if not waiter.done():
            semaphore._value -= 1
            waiter.set_result(True)
