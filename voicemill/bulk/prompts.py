"""Rows that bring a clip to be cloned from: each clip is sent once, as an unlisted voice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from voicemill.bulk.rows import Prompt, Row, RowFault
from voicemill.client import Client, ServerProblemError
from voicemill.errors import InputError, PromptAudioInvalidError


def with_prompts(rows: Iterable[Row], folder: Path) -> Iterator[Row]:
    """The rows, with the files of their clips found; a path is relative to ``folder``.

    A row whose file can't be read gets a fault.
    """
    digests: dict[Path, str] = {}
    for row in rows:
        if row.prompt is None or row.fault:
            yield row
            continue
        path = folder / row.prompt.path
        try:
            if path not in digests:
                digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            fault = PromptAudioInvalidError(f"prompt_audio {path} can't be read: {error.strerror}.")
            yield replace(row, request={}, prompt=None, fault=RowFault.of(fault))
        else:
            yield replace(row, prompt=replace(row.prompt, path=path, sha256=digests[path]))


class PromptVoices:
    """The voices that prompts have become on the server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[tuple[str, str, str], str | RowFault] = {}
        """By what is heard and said: the id of the voice, or why there is none."""

    def input_of(self, row: Row) -> dict[str, object]:
        """A row as one of a job's ``inputs``; its prompt has a voice, see ``refused``."""
        found = self._voice_of(row.prompt) if row.prompt else None
        return row.to_input() if not isinstance(found, str) else {**row.to_input(), "voice": found}

    def refused(self, rows: Iterable[Row]) -> list[tuple[Row, RowFault]]:
        """Have a voice made of each prompt that is new; gives the rows whose can't be used.

        Raises what the client raises.
        """
        found = ((row, self._voice_of(row.prompt)) for row in rows if row.prompt)
        return [(row, one) for row, one in found if isinstance(one, RowFault)]

    def _voice_of(self, prompt: Prompt) -> str | RowFault:
        key = (prompt.sha256, prompt.text, prompt.language)
        if key not in self._found:
            self._found[key] = self._enrol(prompt)
        return self._found[key]

    def _enrol(self, prompt: Prompt) -> str | RowFault:
        try:
            voice = self._client.enrol_voice(prompt.path, prompt.text, language=prompt.language)
        except OSError as error:
            return RowFault(PromptAudioInvalidError.code, f"{prompt.path}: {error.strerror}.")
        except ServerProblemError as problem:
            if problem.status != InputError.http_status:
                raise
            fault = problem.faults[0] if problem.faults else None
            return RowFault(
                fault.code if fault else problem.code, fault.detail if fault else problem.message
            )
        return voice["id"]
