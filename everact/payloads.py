"""How values are stored: codecs, limits, and converters for classes of your own."""

from .journal.aes_gcm_codec import AesGcmCodec
from .journal.codecs import PayloadCodec
from .journal.payload_limits import PayloadLimits
from .journal.payloads import Payload, PayloadConverter, RawValue
from .journal.type_converters import TypeConverter, TypeUpgrade
from .journal.zstd_codec import ZstdCodec

__all__ = [
    "AesGcmCodec",
    "Payload",
    "PayloadCodec",
    "PayloadConverter",
    "PayloadLimits",
    "RawValue",
    "TypeConverter",
    "TypeUpgrade",
    "ZstdCodec",
]
