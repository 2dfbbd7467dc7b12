"""What was measured on: interpreter, processors, libraries, file system."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import lmdb

LIBRARIES = ("everact", "lmdb", "msgspec", "zstandard", "uvloop")

#: File systems that keep nothing: a sync costs nothing there.
VOLATILE = frozenset(["tmpfs", "ramfs"])


def file_system(path: Path) -> tuple[str, str]:
    """Type and device of the file system that holds a path; ``("unknown", "")`` where nobody tells."""
    best: tuple[int, str, str] = (-1, "unknown", "")
    place = str(path.resolve())
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return best[1:]
    for line in lines:
        about, _, what = line.partition(" - ")
        mounted = about.split()[4].replace("\\040", " ")
        if (place + "/").startswith(mounted.rstrip("/") + "/") and len(mounted) >= best[0]:
            kind, device = what.split()[:2]
            best = (len(mounted), kind, device)
    return best[1:]


def default_place() -> Path:
    """The first usual place for temporary files that is on a disk, or the first one."""
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]  # noqa: S108  (mkdtemp makes a folder there)
    for place in places:
        if file_system(place)[0] not in VOLATILE and os.access(place, os.W_OK):
            return place
    return places[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _usable_processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def facts(place: Path, loop: str, durability: dict[str, bool]) -> dict[str, Any]:
    """Everything one has to know to compare figures.

    Args:
        place: Directory of the journals.
        loop: Name of the event loop in use.
        durability: The flags of an open environment.
    """
    kind, device = file_system(place)
    versions = {name: _version(name) for name in LIBRARIES}
    versions["liblmdb"] = ".".join(map(str, lmdb.version()))
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": sys.version.partition("[")[2].rstrip("]"),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "usable_cpus": _usable_processors(),
        "load_1min": round(os.getloadavg()[0], 2),
        "event_loop": loop,
        "versions": versions,
        "journal_file_system": kind,
        "journal_device": device,
        "durability": durability,
    }


def describe(about: dict[str, Any]) -> list[str]:
    """The facts as lines of text."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    flags = ", ".join(f"{name} {'on' if on else 'off'}" for name, on in about["durability"].items())
    lines = [
        f"python      {about['python']}, {about['event_loop']}",
        f"machine     {about['platform']}; {about['processor']}",
        f"processors  {about['usable_cpus']} usable of {about['cpus']}, load {about['load_1min']:.2f}",
        f"libraries   {versions}",
        f"journal on  {about['journal_file_system']} ({about['journal_device']})",
        f"durability  LMDB {flags}",
    ]
    if about["journal_file_system"] in VOLATILE:
        lines.append("WARNING     this file system is memory: a sync costs nothing; give a disk by --journal")
    return lines
