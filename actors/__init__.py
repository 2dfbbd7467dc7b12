"""What authors write, and the workflow actor that runs it."""

from .asyncio_order import install as _install

_install()
