"""Which items of a job are to sound the same, and the name of a sound. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from voicemill import __version__
from voicemill.jobs import ItemInput
from voicemill.voices import Capabilities


def sound_of(item: ItemInput) -> tuple[Any, ...]:
    """All by which an item says how it is to sound; with equal ones, one audio does for both."""
    return (
        *(item.text, item.model, item.voice, item.language, float(item.speed), item.seed),
        *(item.instructions, item.response_format, tuple(sorted(item.options.items()))),
        item.voice_revision,
    )


def marked(items: Iterable[ItemInput]) -> Iterator[ItemInput]:
    """The items, each that is to sound as an earlier one pointing to the first of those."""
    firsts: dict[int, ItemInput] = {}
    for item in items:
        first = firsts.setdefault(hash(sound_of(item)), item)
        if first is item or sound_of(first) != sound_of(item):
            yield item
        else:
            yield replace(item, same_as=first.index)


def digest_of(item: ItemInput, spoken_by: Capabilities, options: Mapping[str, Any]) -> str:
    """The name of how an item sounds when this engine speaks it: 64 hexadecimal digits.

    It differs where anything may sound different: the model, options of the engine, our release.
    """
    made_by = (spoken_by.engine, spoken_by.model_revision, dict(options), __version__)
    named = json.dumps([sound_of(item), made_by], sort_keys=True)
    return hashlib.sha256(named.encode()).hexdigest()
