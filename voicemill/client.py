"""The HTTP client: what a program elsewhere needs to have text spoken.

VoicemillError
└── ClientError
    ├── ServerUnreachableError   no answer, for as long as we were willing to wait
    ├── ServerProblemError       the server answered with a problem; ``code`` is the server's
    └── AudioMismatchError       the audio that arrived is not the audio that was recorded
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from voicemill.answers import Item, ItemPage, Job, Model, Rollout, Voice
from voicemill.transport import (
    AudioMismatchError,
    ClientError,
    ServerProblemError,
    ServerUnreachableError,
    Transport,
)

__all__ = [
    "AudioMismatchError",
    "Client",
    "ClientError",
    "ServerProblemError",
    "ServerUnreachableError",
]

LOOK_SECONDS = 0.2
"""Between two looks at a prompt that is being checked."""


class Client(Transport):
    """One Voicemill server; how patient its calls are is said at ``Transport``."""

    def models(self) -> list[Model]:
        """Every model the server knows."""
        models: list[Model] = self._json("GET", "/v1/models")["data"]
        return models

    def voices(self) -> list[Voice]:
        """Every voice the server knows."""
        voices: list[Voice] = []
        after: dict[str, str] = {}
        while True:
            page = self._json("GET", "/v1/voices", params=after)
            voices += page["data"]
            if not page["has_more"]:
                return voices
            after = {"after": page["last_id"]}

    def enrol_voice(
        self,
        prompt_audio: Path,
        prompt_text: str,
        *,
        language: str,
        name: str | None = None,
        consent: str = "",
        description: str = "",
    ) -> Voice:
        """Enrol a voice that is cloned from a clip and what is said in it; ready when it returns.

        Without a name it is unlisted, and kept as long as the jobs that use its id as their voice.
        A prompt that can't be used raises ``ServerProblemError``, whose ``faults`` say why.
        """
        fields = {
            "prompt_text": prompt_text,
            "language": language,
            "consent": consent,
            "description": description,
            **({"unlisted": "true"} if name is None else {"name": name}),
        }
        files = {"prompt_audio": (prompt_audio.name, prompt_audio.read_bytes())}
        voice: Voice = self._json("POST", "/v1/voices", data=fields, files=files)
        give_up = time.monotonic() + self._patience_seconds
        while is_being_checked(voice) and time.monotonic() < give_up:
            self._given_up.wait(LOOK_SECONDS)
            voice = self.voice(voice["id"])
        enrolled = voice["enrolled"]
        error = enrolled and enrolled["error"]
        if error:
            raise ServerProblemError(
                error["message"], status=HTTPStatus.UNPROCESSABLE_ENTITY, code=error["code"]
            )
        if is_being_checked(voice):
            raise ClientError(
                f"The prompt of {voice['id']} is still not checked; is a clerk running?"
            )
        return voice

    def voice(self, voice_id: str) -> Voice:
        """One voice."""
        voice: Voice = self._json("GET", voice_path(voice_id))
        return voice

    def change_voice(self, voice_id: str, **said: str) -> Voice:
        """Change the ``description`` or the ``consent`` of a voice of yours."""
        voice: Voice = self._json("PATCH", voice_path(voice_id), json=said)
        return voice

    def delete_voice(self, voice_id: str) -> None:
        """Delete a voice of yours with its clip; items that still wait for it fail."""
        self._delete(voice_path(voice_id))

    def download_sample(self, voice_id: str, path: Path, *, sha256: str | None = None) -> int:
        """Write the clip of an enrolled voice to ``path``, as ``download`` does."""
        return self._download(f"{voice_path(voice_id)}/sample", voice_id, path, sha256)

    def create_job(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        metadata: Mapping[str, str] | None = None,
        **defaults: Any,
    ) -> Job:
        """Submit texts to speak: each input has ``input`` and what else the API takes.

        ``defaults`` (``voice``, ``speed``, …) hold for every input without its own; others, such as
        ``concatenate``, for the job.
        """
        body: dict[str, Any] = {**defaults, "inputs": list(inputs)}
        if metadata:
            body["metadata"] = dict(metadata)
        # The same key over all tries of this call lets a server that knows it make one job of them.
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        job: Job = self._json("POST", "/v1/jobs", json=body, headers=headers)
        return job

    def job(self, job_id: str, *, wait_seconds: float = 0.0) -> Job:
        """The job now, or as soon as it has ended if that is within ``wait_seconds``."""
        params = {"wait": f"{wait_seconds:g}"} if wait_seconds > 0 else None
        timeout = self._timeout_seconds + wait_seconds
        job: Job = self._json("GET", job_path(job_id), params=params, timeout=timeout)
        return job

    def cancel(self, job_id: str) -> Job:
        """Ask for the job to stop; its finished items stay."""
        job: Job = self._json("POST", f"{job_path(job_id)}/cancel")
        return job

    def retry(self, job_id: str) -> Job:
        """Run the failed items of a job that has ended once more."""
        params = {"run": self.job(job_id)["run"]}
        job: Job = self._json("POST", f"{job_path(job_id)}/retry", params=params)
        return job

    def delete(self, job_id: str, *, cancel: bool = False) -> None:
        """Delete a job with its audio and texts, one that goes on only with ``cancel``."""
        self._delete(job_path(job_id), params={"cancel": "true"} if cancel else None)

    def start_rollout(
        self,
        model: str,
        revision: str,
        *,
        options: Mapping[str, Any] | None = None,
        canary: Mapping[str, Any] | None = None,
        rule: Mapping[str, Any] | None = None,
    ) -> Rollout:
        """Let another revision replace the one in use, at a few children first."""
        said = {"options": options, "canary": canary, "rule": rule}
        given = {name: value for name, value in said.items() if value is not None}
        body = {"model": model, "revision": revision, **given}
        rollout: Rollout = self._json("POST", "/v1/rollouts", json=body)
        return rollout

    def rollouts(self) -> list[Rollout]:
        """The last rollouts, newest first."""
        rollouts: list[Rollout] = self._json("GET", "/v1/rollouts")["data"]
        return rollouts

    def rollout(self, rollout_id: str) -> Rollout:
        """One rollout as it is now."""
        rollout: Rollout = self._json("GET", rollout_path(rollout_id))
        return rollout

    def promote(self, rollout_id: str) -> Rollout:
        """Have all children change to the new revision."""
        rollout: Rollout = self._json("POST", f"{rollout_path(rollout_id)}/promote")
        return rollout

    def roll_back(self, rollout_id: str) -> Rollout:
        """Have the children that changed change back."""
        rollout: Rollout = self._json("POST", f"{rollout_path(rollout_id)}/rollback")
        return rollout

    def item_page(self, job_id: str, *, after: str | None = None, limit: int = 100) -> ItemPage:
        """The items that follow the one with custom_id ``after``."""
        params: dict[str, str] = {"limit": str(limit)}
        if after is not None:
            params["after"] = after
        page = self._json("GET", f"{job_path(job_id)}/items", params=params)
        return ItemPage(page["data"], page["has_more"])

    def items(self, job_id: str) -> Iterator[Item]:
        """Every item of the job, in its order, fetched page by page."""
        after = None
        while True:
            page = self.item_page(job_id, after=after, limit=1000)
            yield from page.items
            if not page.has_more or not page.items:
                return
            after = page.items[-1]["custom_id"]

    def download(
        self, job_id: str, custom_id: str, path: Path, *, sha256: str | None = None
    ) -> int:
        """Write an item's audio to ``path``, whole or not at all; gives its size in bytes.

        Raises ``AudioMismatchError`` when the bytes are not those of ``sha256``.
        """
        url = f"{job_path(job_id)}/items/{quote(custom_id, safe='')}/audio"
        return self._download(url, custom_id, path, sha256)

    def download_job(self, job_id: str, path: Path, *, sha256: str | None = None) -> int:
        """The same for the one file of a job that was created with ``concatenate=True``."""
        return self._download(f"{job_path(job_id)}/audio", job_id, path, sha256)


def job_path(job_id: str) -> str:
    """The path of a job."""
    return f"/v1/jobs/{quote(job_id, safe='')}"


def rollout_path(rollout_id: str) -> str:
    """The path of a rollout."""
    return f"/v1/rollouts/{quote(rollout_id, safe='')}"


def voice_path(voice_id: str) -> str:
    """The path of a voice."""
    return f"/v1/voices/{quote(voice_id, safe='')}"


def is_being_checked(voice: Voice) -> bool:
    """True while there is no verdict on the prompt of an enrolled voice."""
    return voice["enrolled"] is not None and voice["enrolled"]["status"] == "validating"
