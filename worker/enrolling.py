"""The verdict on prompts, and the files of voices: what a clerk does about enrolment.

It is done here and not by the API, whose process answers everybody: a decoder that dies of a clip
takes no request with it, and the API needs neither audio code nor leave to write files.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from voicemill.enrolment import FOLDER, Clip, EnrolledVoice, clip_of, clip_path
from voicemill.errors import (
    InputError,
    OutputError,
    StorageError,
    StoreRefusedError,
    StoreUnavailableError,
)
from voicemill.jobs import ItemError
from voicemill.outputs import write_audio
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store, WaitingPrompt
from voicemill.tenants import TENANT_ID

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.2
"""Between two looks for prompts: somebody waits for the verdict."""
LEASE_SECONDS = 30.0
TROUBLE_SECONDS = 2.0


class Enroller:
    """Gives the verdict on one prompt after the other. Any number may."""

    def __init__(self, store: Store, settings: Settings, stopping: threading.Event) -> None:
        self._store = store
        self._folder = settings.output_dir
        self._recogniser = settings.recogniser_model
        self._storage = Storage(store, settings)
        self._stopping = stopping

    def run(self) -> None:
        """Go on until told to stop; a store that is away is waited for.

        Whatever else ends it ends the clerk, which is then started again.
        """
        try:
            while not self._stopping.is_set():
                if not self._try():
                    self._stopping.wait(PAUSE_SECONDS)
        finally:
            self._stopping.set()

    def _try(self) -> bool:
        try:
            return self.tick()
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("no prompt checked this time: %s", error)
            return False

    def tick(self) -> bool:
        """Give the verdict on the prompt that waits, if one does; raises what the store raises."""
        prompt = self._store.take_prompt(LEASE_SECONDS)
        if prompt is not None:
            self.end(prompt)
        return prompt is not None

    def end(self, prompt: WaitingPrompt) -> None:
        """Accept a prompt, refuse it, or have it wait where its clip can't be written."""
        # Only a clerk that has a prompt to judge needs the memory of audio code.
        from worker.prompts import checked

        voice = prompt.voice
        try:
            self._accept(voice, checked(prompt, self._recogniser))
        except InputError as error:
            self._store.refuse_prompt(voice, ItemError.of(error))
            logger.info("voice %s of %s refused: %s", voice.name, voice.tenant, error.code)
        except (OutputError, StorageError) as error:
            logger.warning("voice %s of %s waits: %s", voice.name, voice.tenant, error.message)
            self._store.return_prompt(voice, TROUBLE_SECONDS)

    def _accept(self, voice: EnrolledVoice, found: tuple[Clip, bytes]) -> None:
        trouble = self._storage.look()
        if trouble is not None:
            raise trouble
        clip, data = found
        path = clip_path(self._folder, replace(voice, clip=clip))
        with self._storage.writing(len(data)):
            write_audio(path, data)
        if not self._store.accept_prompt(voice, clip):
            path.unlink(missing_ok=True)
        logger.info("voice %s of %s enrolled", voice.name, voice.tenant)


def remove_clips(store: Store, output_dir: Path) -> int:
    """Remove the clips of deleted voices, and what models made of them; gives how many clips.

    Raises what the store raises.
    """
    removed = 0
    for clip in store.voice_removals():
        try:
            path = output_dir / FOLDER / clip
            for one in (*path.parent.glob(f"{path.stem}.*.npz"), path):
                one.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the clip %s is not removed: %s", clip, error)
        else:
            store.clip_removed(clip)
            removed += 1
    return removed


def sweep_clips(store: Store, output_dir: Path, seconds: float) -> int:
    """Remove files older than ``seconds`` that are no voice's clip; gives how many.

    Raises what the store raises, and ``OSError``.
    """
    before, removed = time.time() - seconds, 0
    for tenant, folder in tenant_folders(output_dir):
        old = [
            one for one in os.scandir(folder) if one.stat(follow_symlinks=False).st_mtime < before
        ]
        if not old:
            continue
        kept = store.clips(tenant)
        for entry in old:
            if clip_of(entry.name) not in kept and entry.is_file(follow_symlinks=False):
                Path(entry.path).unlink(missing_ok=True)
                removed += 1
    return removed


def tenant_folders(output_dir: Path) -> Iterator[tuple[str, Path]]:
    """Where each tenant's clips are; no link is followed."""
    try:
        entries = list(os.scandir(output_dir / FOLDER))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and TENANT_ID.fullmatch(entry.name):
            yield entry.name, Path(entry.path)
