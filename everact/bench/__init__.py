"""Measure this machine: Everact beside the bare limits of the same disk and interpreter, in one run.

``everact bench``, ``make bench`` and ``python -m everact.bench`` are the same; docs/benchmarks.md says what each
line means.
"""

from .driver import main

__all__ = ["main"]
