"""Installed packages and their RECORD files: finding, reading and checking; plain Python, no workflows.

RECORD is a CSV file of path, hash and size, see
https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

#: Read from a file at a time, in bytes.
CHUNK = 1 << 20
#: Names are cut to this many characters where they become part of an id.
NAME_LIMIT = 100


class RecordError(Exception):
    """A RECORD cannot be used; the message says why."""


@dataclass(frozen=True)
class Package:
    """One installed distribution.

    Attributes:
        key: Name and version, made unique within one audit.
        name: Its name.
        version: Its version.
        metadata: Path of its ``.dist-info`` or ``.egg-info``; empty when it is not in a directory.
    """

    key: str
    name: str
    version: str
    metadata: str


class Entry(NamedTuple):
    """One line of a RECORD.

    Attributes:
        path: Relative to the folder that holds the ``.dist-info``, with slashes; or absolute.
        algorithm: Such as ``sha256``; empty when the line has no hash.
        digest: URL-safe base64 without padding.
    """

    path: str
    algorithm: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Findings:
    """What checking some files has shown.

    Attributes:
        files: Number of lines of RECORD.
        bytes: Bytes that were hashed.
        unhashed: Lines without a hash that could be checked.
        changed: Paths of files whose hash differs.
        missing: Paths of files that are not there.
        unreadable: Paths of what cannot be read, or is no file.
    """

    files: int = 0
    bytes: int = 0
    unhashed: int = 0
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        return Findings(
            self.files + other.files,
            self.bytes + other.bytes,
            self.unhashed + other.unhashed,
            self.changed + other.changed,
            self.missing + other.missing,
            self.unreadable + other.unreadable,
        )


@dataclass(frozen=True)
class PackageResult:
    """One line of the table.

    Attributes:
        package: What was audited.
        findings: What its files have shown.
        note: Why there was nothing to check, or empty.
    """

    package: Package
    findings: Findings = field(default_factory=Findings)
    note: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether every file that RECORD lists is there as RECORD says."""
        found = self.findings
        return not (found.changed or found.missing or found.unreadable)


# --- finding ----------------------------------------------------------------------------------------------------


def find_packages(places: Sequence[str]) -> list[Package]:
    """Find the distributions in some folders, sorted by name.

    Args:
        places: Folders such as those of ``sys.path``.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for distribution in distributions(path=list(places)):
        metadata = _metadata_path(distribution)
        name, version = _name_and_version(distribution, metadata)
        found.setdefault(
            os.path.realpath(metadata) if metadata else f"{name} {version}", (name, version, metadata)
        )
    seen: Counter[str] = Counter()
    packages = []
    for name, version, metadata in sorted(found.values(), key=lambda item: (item[0].lower(), *item)):
        key = f"{name[:NAME_LIMIT]}-{version[:NAME_LIMIT]}"
        seen[key] += 1
        packages.append(Package(key if seen[key] == 1 else f"{key}#{seen[key]}", name, version, metadata))
    return packages


def _metadata_path(distribution: Distribution) -> str:
    # importlib.metadata has no public name for this folder; in a zip file it is none of the file system.
    path = getattr(distribution, "_path", None)
    return os.fspath(path) if isinstance(path, os.PathLike) else ""


def _name_and_version(distribution: Distribution, metadata: str) -> tuple[str, str]:
    # Remains of an interrupted installation have no METADATA, or half of one.
    try:
        fields = distribution.metadata
        name, version = ((fields.get_all(field) or [""])[0] for field in ("Name", "Version"))
    except (OSError, TypeError, ValueError):
        name = version = ""
    stem, _, rest = Path(metadata).stem.partition("-")
    return name or stem or "(no name)", version or rest or "?"


# --- reading ----------------------------------------------------------------------------------------------------


def read_record(package: Package) -> list[Entry]:
    """Read a package's RECORD.

    Raises:
        RecordError: It is missing or cannot be read.
    """
    if not package.metadata:
        raise RecordError("not in a directory")
    try:
        with Path(package.metadata, "RECORD").open(encoding="utf-8", newline="") as file:
            return parse_record(file.read())
    except (FileNotFoundError, NotADirectoryError):
        raise RecordError("no RECORD") from None
    except UnicodeDecodeError:
        raise RecordError("RECORD is not UTF-8") from None
    except OSError as error:
        raise RecordError(f"RECORD cannot be read: {error.strerror or error}") from None


def parse_record(text: str) -> list[Entry]:
    """Parse the text of a RECORD; lines may lack their last fields.

    Raises:
        RecordError: It is not CSV.
    """
    entries = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            if row and row[0]:
                algorithm, _, digest = (row[1] if len(row) > 1 else "").partition("=")
                entries.append(Entry(row[0], algorithm.strip().lower(), digest.strip()))
    except csv.Error as error:
        raise RecordError(f"RECORD is not CSV: {error}") from None
    return entries


# --- checking ---------------------------------------------------------------------------------------------------


def check_files(package: Package, entries: Iterable[Entry]) -> Findings:
    """Hash files and compare them with what RECORD says.

    Args:
        package: Whose files they are; they are relative to the folder that holds its metadata.
        entries: Lines of its RECORD.
    """
    root = Path(package.metadata).parent
    files = size = unhashed = 0
    changed, missing, unreadable = [], [], []
    for entry in entries:
        files += 1
        path = root / entry.path  # which is entry.path itself where that is absolute
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its other end
                unreadable.append(entry.path)
            elif entry.algorithm not in hashlib.algorithms_guaranteed or "shake" in entry.algorithm:
                unhashed += 1
            else:
                read, digest = hash_file(path, entry.algorithm)
                size += read
                if digest != entry.digest.rstrip("="):
                    changed.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            if entry.algorithm or not entry.path.endswith(".pyc"):
                missing.append(entry.path)
            else:  # Python makes compiled files again; many images leave them out
                unhashed += 1
        except (OSError, ValueError):
            unreadable.append(entry.path)
    return Findings(files, size, unhashed, tuple(changed), tuple(missing), tuple(unreadable))


def hash_file(path: Path, algorithm: str) -> tuple[int, str]:
    """Hash a file.

    Args:
        path: The file.
        algorithm: A name of hashlib.

    Returns:
        Its size in bytes, and its hash as RECORD writes it: URL-safe base64 without padding.
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return size, base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
