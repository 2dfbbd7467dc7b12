"""Codecs for tests: one that can be held, one that fails on demand, one in threads."""

import asyncio

import msgspec

from everact.payloads import AesGcmCodec, Payload, PayloadCodec

KEY = b"k" * 32


def encrypted(**options):
    return AesGcmCodec({"k": KEY}, active="k", **options)


class Untouched(PayloadCodec):
    """Passes for encryption and does nothing, to look at what is stored."""

    encryption = "aes-gcm"

    def encode(self, payloads):
        return payloads

    def decode(self, payloads):
        return payloads


class InThreads(AesGcmCodec):
    """Encryption that never runs on the loop."""

    inline_limit = 0

    def __init__(self):
        super().__init__({"k": KEY}, active="k")


class Wrapping(PayloadCodec):
    """Marks payloads; ``gate`` holds those that ``holds`` says, ``breaks`` makes the others raise.

    Attributes:
        at_work: Set when somebody stands at the gate.
    """

    def __init__(self):
        self.gate = asyncio.Event()
        self.at_work = asyncio.Event()
        self.holds = lambda payload, way: False
        self.breaks = lambda payload, way: False

    async def encode(self, payloads):
        await self._look(payloads, "encode")
        return [Payload("wrapped", msgspec.msgpack.encode(payload)[::-1]) for payload in payloads]

    async def decode(self, payloads):
        plain = [msgspec.msgpack.decode(payload.data[::-1], type=Payload) for payload in payloads]
        await self._look(plain, "decode")
        return plain

    async def _look(self, payloads, way):
        for payload in payloads:
            if self.breaks(payload, way):
                raise OSError(f"cannot {way} {payload.data!r}")
        if any(self.holds(payload, way) for payload in payloads):
            self.at_work.set()
            await self.gate.wait()


def holding(word, way="encode"):
    """For ``holds`` and ``breaks``: payloads with this word in them."""
    return lambda payload, going: going == way and word.encode() in payload.data
