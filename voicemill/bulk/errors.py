"""What stops a bulk run as a whole; a fault of one row never does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voicemill.errors import VoicemillError

FAULTS_SHOWN = 20


class BulkError(VoicemillError):
    """The bulk run can't go on."""

    code = "bulk_error"
    title = "The bulk run stopped"


@dataclass(frozen=True, slots=True)
class TableFault:
    """One thing that makes a whole file unusable."""

    detail: str
    line: int | None = None
    """Physical line, from 1; a quoted cell may span several."""
    record: int | None = None
    """Data record, from 1, blank lines and the header not counted."""

    def __str__(self) -> str:
        return f"{place(self.line, self.record)}{self.detail}"


class TableError(BulkError):
    """The input file can't be used; ``faults`` say where and why. Nothing was sent."""

    code = "table_invalid"
    title = "The input file can't be used"

    def __init__(self, name: str, faults: Sequence[TableFault]) -> None:
        shown = [f"{name}: {fault}" for fault in faults[:FAULTS_SHOWN]]
        if len(faults) > FAULTS_SHOWN:
            shown.append(f"{name}: and {len(faults) - FAULTS_SHOWN} more faults.")
        super().__init__("\n".join(shown))
        self.faults = tuple(faults)


class FolderError(BulkError):
    """The output folder can't be used."""

    code = "folder_unusable"
    title = "The output folder can't be used"


class FolderLockedError(FolderError):
    """Another bulk run is at work in the output folder."""

    code = "folder_locked"
    title = "The output folder is in use"
    retryable = True


class ManifestError(FolderError):
    """The manifest of the output folder can't be read."""

    code = "manifest_unreadable"
    title = "The manifest can't be read"


def place(line: int | None, record: int | None) -> str:
    """Where something stands in a CSV file, as a prefix of a message."""
    if line is None:
        return ""
    return f"line {line}: " if record is None else f"line {line} (record {record}): "
