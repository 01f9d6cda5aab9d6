"""The enrolled voices that an engine has taken in: on first use, up to a number, none deleted."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from voicemill.enrolment import EnrolledVoice, VoiceStatus, clip_path, features_path
from voicemill.errors import (
    PromptAudioInvalidError,
    SynthesisError,
    UnsupportedFeatureError,
    VoiceNotFoundError,
)
from voicemill.jobs import ItemInput
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.tenants import SHARED_TENANT
from worker.engines.base import ClonesVoices, Engine, Prompt
from worker.patience import patiently
from worker.sharing import GoneError, UnreadableError, check

logger = logging.getLogger(__name__)


class EngineVoices:
    """What one child's engine has of enrolled voices, each under the name of its revision.

    Two tenants' voices of one name have different revisions, and so have two of one transcript.
    """

    def __init__(self, store: Store, engine: Engine, settings: Settings, model: str) -> None:
        """``model`` names the revision whose features of a prompt may be kept."""
        self._model = model
        self._store = store
        self._engine = engine
        self._settings = settings
        self._taken: OrderedDict[str, EnrolledVoice] = OrderedDict()
        """By revision, the one used longest ago first."""
        self._lock = threading.Lock()
        self._deletions: int | None = None

    def find(self, tenant: str, item: ItemInput) -> EnrolledVoice | None:
        """The enrolled voice that an item was submitted with; nothing for an engine's own.

        Raises ``VoiceNotFoundError`` where it has been deleted since.
        """
        if item.voice_revision is None:
            return None
        for owner in (tenant, SHARED_TENANT):
            voice = patiently(self._settings.lease_seconds, self._store.voice, owner, item.voice)
            if voice is not None and self._is(voice, item.voice_revision):
                return voice
        raise VoiceNotFoundError(
            f"The voice {item.voice!r} was deleted after the job was submitted; submit it again."
        )

    @contextmanager
    def alone(self) -> Iterator[str | None]:
        """While the engine is called for something else; nothing is forgotten now.

        Gives the name for the engine of the voice that was used last, if it has taken in any.
        """
        with self._lock:
            yield next(reversed(self._taken), None)

    @contextmanager
    def speaking(self, item: ItemInput, voice: EnrolledVoice | None) -> Iterator[str]:
        """The name of the voice for the engine, which has taken it in; nothing is forgotten now.

        Raises ``PromptAudioInvalidError``, and what the engine raises.
        """
        with self._lock:
            yield item.voice if voice is None else self._take(voice)

    def heed(self, deletions: int) -> None:
        """Forget what was deleted, once no call is running; for any thread.

        ``deletions`` is how many voices were ever deleted. Raises what the store raises.
        """
        if deletions == self._deletions or not self._lock.acquire(blocking=False):
            return
        try:
            for revision, taken in list(self._taken.items()):
                now = self._store.voice(taken.tenant, taken.name)
                if now is None or not self._is(now, revision):
                    self._forget(revision)
            self._deletions = deletions
        finally:
            self._lock.release()

    @staticmethod
    def _is(voice: EnrolledVoice, revision: str) -> bool:
        return voice.status is VoiceStatus.READY and voice.revision == revision

    def _take(self, voice: EnrolledVoice) -> str:
        revision = voice.revision
        if revision in self._taken:
            self._taken.move_to_end(revision)
            return revision
        if not isinstance(self._engine, ClonesVoices):
            raise UnsupportedFeatureError("The engine can't speak in enrolled voices.")
        path = clip_path(self._settings.output_dir, voice)
        try:
            check(path, voice.clip.sha256 if voice.clip else "")
        except GoneError as error:
            raise PromptAudioInvalidError(
                f"The clip of the voice {voice.name!r} is gone or damaged; delete the voice and "
                "enrol it again."
            ) from error
        except UnreadableError as error:
            raise SynthesisError(
                f"The clip of the voice {voice.name!r} can't be read now."
            ) from error
        while len(self._taken) >= self._settings.max_voices_per_child:
            self._forget(next(iter(self._taken)))
        kept = features_path(self._settings.output_dir, voice, self._model)
        self._engine.enrol(revision, Prompt(path, voice.prompt_text, voice.language, kept))
        self._taken[revision] = voice
        logger.info("voice %s of %s is taken in", voice.name, voice.tenant)
        return revision

    def _forget(self, revision: str) -> None:
        voice = self._taken.pop(revision)
        try:
            if isinstance(self._engine, ClonesVoices):
                self._engine.forget(revision)
        # An engine may raise anything; what it keeps then ends with its process.
        except Exception:
            logger.exception("the engine did not forget a voice")
        logger.info("voice %s of %s is forgotten", voice.name, voice.tenant)
