"""The formats that audio comes in."""

from __future__ import annotations

from collections.abc import Mapping

MEDIA_TYPES: Mapping[str, str] = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "ogg": "audio/ogg",
}
"""By format."""
RESPONSE_FORMATS = tuple(MEDIA_TYPES)
