"""Enrolled voices: added with a prompt that waits for its verdict, read, deleted for good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis

from voicemill.enrolment import Clip, EnrolledVoice, VoiceStatus, clip_path
from voicemill.errors import QueueFullError, TooManyVoicesError, VoiceExistsError
from voicemill.jobs import SCHEMA, ItemError
from voicemill.store.connection import Connection, key, translated
from voicemill.store.removal import REWRITE_SECONDS
from voicemill.tenants import SHARED_TENANT

SAID = ("language", "prompt_text", "consent", "description")
MOST_VOICES = 1000
MOST_UNLISTED = 10_000
"""Listed ones of one tenant."""
MOST_PROMPTS = 32
"""Uploads that wait for their verdict; each may have some megabytes."""
UNUSED_SECONDS = 86400.0
"""How long an unlisted voice is kept that no job uses."""
USED_SECONDS = 60.0
"""Time between two looks at whether the jobs of an unlisted voice are still there."""


@dataclass(frozen=True, slots=True)
class WaitingPrompt:
    """A prompt whose verdict is this caller's to give."""

    voice: EnrolledVoice
    upload: bytes
    tries: int
    """How often it was taken, this time included."""


class VoiceStore(Connection):
    """Keeps the voices of tenants."""

    def add_voice(self, voice: EnrolledVoice, upload: bytes) -> bool:
        """Keep a voice until there is a verdict on its prompt; False where it is there already.

        Raises ``VoiceExistsError`` where another one has its name, ``TooManyVoicesError``, and
        ``QueueFullError`` where too many wait.
        """
        said = {name: getattr(voice, name) for name in SAID}
        digest = hashlib.sha256(json.dumps(said).encode() + upload).hexdigest()
        try:
            added = self.run(
                "add_voice",
                *(voice.tenant, voice.name, voice.token, digest, upload),
                *(UNUSED_SECONDS if voice.is_unlisted else "", MOST_VOICES, MOST_UNLISTED),
                *(MOST_PROMPTS, REWRITE_SECONDS, *pairs(said)),
            )
        except redis.exceptions.ResponseError as error:
            match str(error).split():
                case ["EXISTS", *_]:
                    raise VoiceExistsError(
                        f"You have another voice {voice.name!r}; delete it first."
                    ) from error
                case ["FULL", *_]:
                    raise QueueFullError("Too many prompts wait; try again later.") from error
                case ["VOICES", *_]:
                    raise too_many(voice) from error
            raise
        return bool(added)

    def voice(self, tenant: str, name: str) -> EnrolledVoice | None:
        """The voice of this tenant and name."""
        return self._read([(tenant, name)])[0]

    def voices(self, tenant: str) -> list[EnrolledVoice]:
        """The listed voices of a tenant, in the order of their enrolment."""
        with translated():
            names = self._redis.zrange(key("voices", tenant), 0, -1)
        found = self._read([(tenant, name.decode()) for name in names])
        return [voice for voice in found if voice is not None]

    def voices_for(self, tenant: str, names: Iterable[str]) -> dict[str, EnrolledVoice]:
        """The voices of these names that a tenant may speak with: its own, else shared ones."""
        wanted = list(dict.fromkeys(names))
        owners = (SHARED_TENANT, tenant)
        found = self._read([(owner, name) for owner in owners for name in wanted])
        return {voice.name: voice for voice in found if voice is not None}

    def keep_voices(self, tenant: str, names: Iterable[str], job_id: str) -> None:
        """Keep unlisted voices for as long as a job that is about to be created."""
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            until = self._seconds() + UNUSED_SECONDS
            for name in names:
                pipeline.sadd(key("voice_jobs", tenant, name), job_id)
                pipeline.zadd(key("unlisted_voices"), {f"{tenant}/{name}": until}, xx=True, gt=True)
            pipeline.execute()

    def change_voice(self, tenant: str, name: str, said: Mapping[str, str]) -> bool:
        """Change what is said about a voice; False where there is none."""
        return bool(self.run("change_voice", tenant, name, *pairs(said)))

    def delete_voice(self, tenant: str, name: str, *, token: str = "") -> bool:
        """Forget a voice; False where there is none, or none of this token."""
        return bool(self.run("delete_voice", tenant, name, token, REWRITE_SECONDS, ""))

    def take_prompt(self, lease_seconds: float) -> WaitingPrompt | None:
        """A prompt to give a verdict on; another caller is given it when the lease runs out."""
        taken = self.run("take_prompt", lease_seconds)
        if taken is None:
            return None
        voice = self.voice(taken[0].decode(), taken[1].decode())
        if voice is None:
            return None
        with translated():
            upload = self._redis.get(key("upload", voice.token))
        return WaitingPrompt(voice, upload or b"", int(taken[2]))

    def return_prompt(self, voice: EnrolledVoice, pause: float) -> None:
        """Have a prompt wait for so many seconds; that it was taken does not count."""
        self.run("return_prompt", voice.tenant, voice.name, voice.token, pause)

    def accept_prompt(self, voice: EnrolledVoice, clip: Clip) -> bool:
        """Make a voice ready. False: the voice is gone, and the clip must go."""
        known = {name: value for name, value in asdict(clip).items() if value is not None}
        return self._end_prompt(voice, VoiceStatus.READY, known)

    def refuse_prompt(self, voice: EnrolledVoice, error: ItemError) -> bool:
        """Say why a voice is not to be."""
        said = {"error_code": error.code, "error_message": error.message}
        return self._end_prompt(voice, VoiceStatus.REFUSED, said)

    def voice_removals(self, *, limit: int = 100) -> list[str]:
        """Clips to be removed: ``TENANT/FILE``."""
        with translated():
            return [one.decode() for one in self._redis.srandmember(key("voice_removals"), limit)]

    def clips(self, tenant: str) -> set[str]:
        """The names of the files that a tenant's voices have."""
        with translated():
            prefix = key("voice", tenant, "")
            names = [
                one.decode().removeprefix(prefix)
                for one in self._redis.scan_iter(match=f"{prefix}*", count=1000)
            ]
        found = self._read([(tenant, name) for name in names])
        return {clip_path(Path(), voice).name for voice in found if voice and voice.clip}

    def clip_removed(self, clip: str) -> None:
        """A clip is gone."""
        with translated():
            self._redis.srem(key("voice_removals"), clip)

    def expire_voices(self, *, limit: int = 100) -> int:
        """Delete unlisted voices whose jobs are gone, or that had none; gives how many."""
        now = self._seconds()
        with translated():
            due = self._redis.zrangebyscore(key("unlisted_voices"), "-inf", now, 0, limit)
        deleted = 0
        for member in due:
            tenant, _, name = member.decode().partition("/")
            if self._is_used(tenant, name):
                with translated():
                    until = {f"{tenant}/{name}": now + USED_SECONDS}
                    self._redis.zadd(key("unlisted_voices"), until, xx=True, gt=True)
            else:
                deleted += self.run("delete_voice", tenant, name, "", REWRITE_SECONDS, now)
        return deleted

    def _is_used(self, tenant: str, name: str) -> bool:
        with translated():
            used_by = self._redis.smembers(key("voice_jobs", tenant, name))
            with self._redis.pipeline(transaction=False) as pipeline:
                for job in used_by:
                    pipeline.hmget(key("job", job.decode()), "schema", "deleted", "data_removed")
                records = pipeline.execute()
        return any(record == [str(SCHEMA).encode(), None, None] for record in records)

    def _end_prompt(
        self, voice: EnrolledVoice, status: VoiceStatus, said: Mapping[str, Any]
    ) -> bool:
        mine = (voice.tenant, voice.name, voice.token, status, REWRITE_SECONDS)
        return bool(self.run("end_prompt", *mine, *pairs(said)))

    def _read(self, whose: Iterable[tuple[str, str]]) -> list[EnrolledVoice | None]:
        with translated(), self._redis.pipeline(transaction=False) as pipeline:
            for tenant, name in whose:
                pipeline.hgetall(key("voice", tenant, name))
            return [read_voice(record) for record in pipeline.execute()]

    def _seconds(self) -> float:
        with translated():
            seconds, microseconds = self._redis.time()
        return float(seconds) + float(microseconds) / 1e6


def too_many(voice: EnrolledVoice) -> TooManyVoicesError:
    """The tenant of a voice has as many as it may."""
    if voice.is_unlisted:
        return TooManyVoicesError(
            f"Your jobs use {MOST_UNLISTED} clips, which is the most; wait until some have ended, "
            "or enrol those you use again and again."
        )
    return TooManyVoicesError(
        f"You have {MOST_VOICES} voices, which is the most; delete one first."
    )


def pairs(fields: Mapping[str, Any]) -> Iterator[Any]:
    """Names and values in turn."""
    return (part for pair in fields.items() for part in pair)


def read_voice(record: Mapping[bytes, bytes]) -> EnrolledVoice | None:
    """The voice that a hash holds; nothing for none, or for one of a schema we don't know."""
    fields = {name.decode(): value.decode() for name, value in record.items()}
    if fields.get("schema") != str(SCHEMA):
        return None
    clip = error = None
    if "sha256" in fields:
        clip = Clip(
            sha256=fields["sha256"],
            duration_seconds=float(fields["duration_seconds"]),
            sample_rate=int(fields["sample_rate"]),
            size_bytes=int(fields["size_bytes"]),
            transcript_error_rate=float(differs)
            if (differs := fields.get("transcript_error_rate"))
            else None,
        )
    if "error_code" in fields:
        error = ItemError(fields["error_code"], fields["error_message"], retryable=False)
    return EnrolledVoice(
        tenant=fields["tenant"],
        name=fields["name"],
        token=fields["token"],
        language=fields["language"],
        prompt_text=fields["prompt_text"],
        consent=fields["consent"],
        description=fields["description"],
        created_at=float(fields["created_at"]),
        status=VoiceStatus(fields["status"]),
        clip=clip,
        error=error,
    )
