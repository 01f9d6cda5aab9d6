"""The output folder takes no audio now, whatever the item."""

from __future__ import annotations

from voicemill.errors.synthesis import SynthesisError


class StorageError(SynthesisError):
    """The output folder takes no audio now, whatever the item; it costs no attempt."""

    code = "storage_failed"
    title = "The output folder takes no audio"
    redraws = False


class DiskFullError(StorageError):
    """The disk, or a quota on it, has no room for the audio."""

    code = "disk_full"
    title = "The disk is full"


class AccessDeniedError(StorageError):
    """The worker may not write to the output folder."""

    code = "output_denied"
    title = "The output folder may not be written to"


class ReadOnlyError(StorageError):
    """The output folder is on a file system that is mounted read-only."""

    code = "output_read_only"
    title = "The output folder is read-only"


class MountMissingError(StorageError):
    """The output folder is gone, or what is there now is another (an empty mount point)."""

    code = "output_missing"
    title = "The output folder is missing"
