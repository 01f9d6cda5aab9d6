"""From a body to the items of a job, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from api.reading import read_part
from api.requests import (
    FAIRNESS_KEY,
    MAX_FAULTS,
    MAX_INPUTS,
    JobDefaults,
    JobInput,
    without_nulls,
)
from voicemill.enrolment import UNLISTED_NAME, VOICE_NAME, EnrolledVoice
from voicemill.errors import (
    DuplicateCustomIdError,
    Fault,
    InputError,
    InvalidInputError,
    MissingFieldError,
    ModelNotFoundError,
    PayloadTooLargeError,
    TextTooLongError,
    VoiceNotFoundError,
)
from voicemill.fairness import JobClass, Standing, default_class
from voicemill.jobs import ItemInput, JobRules, check_custom_id, default_custom_id
from voicemill.limits import Limits
from voicemill.settings import Settings
from voicemill.text import check_text
from voicemill.voices import Capabilities

CONCATENATED_ALIKE = ("model", "response_format")
"""Fields that all items of one file share."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a job says beside its inputs' own fields."""

    metadata: Mapping[str, str]
    rules: JobRules
    standing: Standing
    reuse: bool
    revision: str | None = None


FindVoices = Callable[[Iterable[str]], Mapping[str, EnrolledVoice]]
"""Gives those of the voices of these names that were enrolled."""


class Submission:
    """Reads one body; what is wrong gathers in ``faults``."""

    def __init__(
        self,
        engines: Mapping[str, Capabilities],
        settings: Settings,
        find_voices: FindVoices = lambda _: {},
    ) -> None:
        self.engines = engines
        self.settings = settings
        self.find_voices = find_voices
        self.enrolled: Mapping[str, EnrolledVoice] = {}
        """By the names that the body has."""
        self.faults: list[Fault] = []
        self.ids: dict[str, int] = {}
        """Index of the input that has a custom_id."""
        self.defaults: Mapping[str, Any] = {}
        self.defaults_model_is_bad = False

    def read(self, raw: object, fairness_key: str | None = None) -> tuple[list[ItemInput], Head]:
        """The items and what else the job says; ``fairness_key`` is that of the header.

        Raises ``InvalidInputError`` with every fault, or ``PayloadTooLargeError``.
        """
        inputs = self.inputs_of(raw)
        head = {key: raw[key] for key in raw if key != "inputs"} if isinstance(raw, dict) else raw
        job, bad = read_part(JobDefaults, head, "", self.faults)
        if job is not None:
            self.defaults = without_nulls(job)
            self.defaults_model_is_bad = "model" in bad
        self.note(lambda: check_fairness_key(fairness_key), "")
        self.enrolled = self.find_voices(voice_names([head, *inputs]))
        items = [self.item(index, one) for index, one in enumerate(inputs)]
        if job is not None and "concatenate" not in bad:
            self.check_concatenation(job, inputs, items)
        if self.faults:
            # A wrong default is found once for every input that takes it.
            raise InvalidInputError(list(dict.fromkeys(self.faults)))
        found = [item for item in items if item is not None]
        job = job or JobDefaults.model_construct()
        rules = rules_of(job, len(inputs), self.settings.retention_seconds)
        standing = standing_of(job, found, fairness_key)
        return found, Head(job.metadata or {}, rules, standing, job.reuse, job.revision)

    def inputs_of(self, raw: object) -> list[Any]:
        """The raw inputs; none where there is nothing to go through."""
        if not isinstance(raw, dict):
            return []
        if "inputs" not in raw:
            self.faults.append(MissingFieldError("The field 'inputs' is missing.").at("/inputs"))
            return []
        inputs = raw["inputs"]
        if not isinstance(inputs, list) or not inputs:
            self.faults.append(InputError("inputs: give a list of one or more.").at("/inputs"))
            return []
        if len(inputs) > MAX_INPUTS:
            raise PayloadTooLargeError(
                f"The job has {len(inputs)} inputs and may have {MAX_INPUTS}; split it."
            )
        return inputs

    def item(self, index: int, raw: object) -> ItemInput | None:
        """One item; what can't be used in it is noted and stands at its default."""
        told = max(len(self.faults) + 1, MAX_FAULTS)
        item = self.read_item(index, raw)
        del self.faults[told:]
        return item

    def read_item(self, index: int, raw: object) -> ItemInput | None:
        """One item, whatever number of faults it has."""
        pointer = f"/inputs/{index}"
        one, bad = read_part(JobInput, raw, pointer, self.faults)
        if one is None:
            return None
        text = "" if "input" in bad else one.input
        if "input" not in bad:
            self.note(lambda: self.check_text(text), f"{pointer}/input")
        custom_id = one.custom_id if one.custom_id is not None else default_custom_id(index)
        if "custom_id" not in bad:
            self.note(lambda: self.check_custom_id(custom_id, index), f"{pointer}/custom_id")
        given = without_nulls(one)
        chosen = {"model": self.settings.engine, **self.defaults, **given}
        engine = self.engines.get(chosen["model"])
        chosen.setdefault("voice", engine.voices[0].name if engine and engine.voices else "")
        chosen |= self.pinned(engine, chosen["voice"], chosen.get("language"))
        item = ItemInput(
            index=index, custom_id=custom_id, text=text, metadata=one.metadata or {}, **chosen
        )
        model_is_bad = "model" in bad or (self.defaults_model_is_bad and "model" not in given)
        if not model_is_bad:
            for field, error in self.refusals(engine, item):
                is_own = field.partition("/")[0] in given
                self.faults.append(error.at(f"{pointer}/{field}" if is_own else f"/{field}"))
        return item

    def pinned(
        self, engine: Capabilities | None, name: str, language: str | None
    ) -> Mapping[str, Any]:
        """What an item has of an enrolled voice, where that is the one it names.

        An engine that can't clone speaks with its own voice of that name.
        """
        voice = self.enrolled.get(name)
        if engine is None or voice is None or (not engine.cloning and engine.has_voice(name)):
            return {}
        return {
            "voice_revision": voice.revision,
            "language": language or engine.tag_for(voice.language),
        }

    def check_concatenation(
        self, job: JobDefaults, inputs: Sequence[Any], items: Sequence[ItemInput | None]
    ) -> None:
        """Note why the items of a job that wants them in one file can't be joined."""
        if job.concatenate_silence_ms and not job.concatenate:
            error = InputError(
                "concatenate_silence_ms: set concatenate to true, or leave this out."
            )
            self.note_first(error.at("/concatenate_silence_ms"))
        known = [item for item in items if item is not None]
        for field in CONCATENATED_ALIKE if job.concatenate else ():
            values = [getattr(item, field) for item in known]
            place = next((n for n, value in enumerate(values) if value != values[0]), None)
            if place is not None:
                first, other = known[0].index, known[place].index
                error = InputError(
                    f"{field}: items of one file have the same; input {first} has {values[0]!r} "
                    f"and input {other} {values[place]!r}."
                )
                is_given = inputs[other].get(field) is not None
                self.note_first(error.at(f"/inputs/{other}" + (f"/{field}" if is_given else "")))

    def note_first(self, fault: Fault) -> None:
        """Note what is wrong at a place, unless something is wrong there already."""
        if all(fault.pointer != other.pointer for other in self.faults):
            self.faults.append(fault)

    def note(self, check: Callable[[], None], pointer: str) -> None:
        """Run a check and keep what it finds."""
        try:
            check()
        except InputError as error:
            self.faults.append(error.at(pointer))

    def check_text(self, text: str) -> None:
        """Raise when nothing of the text can be spoken, or there is too much of it."""
        limit = self.settings.max_input_characters
        if len(text) > limit:
            raise TextTooLongError(
                f"The text has {len(text)} characters and may have {limit}; split it."
            )
        check_text(text)

    def check_custom_id(self, custom_id: str, index: int) -> None:
        """Raise for an id that can't be used or is taken."""
        check_custom_id(custom_id)
        first = self.ids.setdefault(custom_id, index)
        if first != index:
            raise DuplicateCustomIdError(
                f"custom_id {custom_id!r} is used by input {first} and again by input {index}."
            )

    def refusals(
        self, engine: Capabilities | None, item: ItemInput
    ) -> Iterator[tuple[str, InputError]]:
        """What the item's engine can't do: the field's name and the error."""
        if engine is not None:
            voice = self.enrolled.get(item.voice)
            if voice is not None and item.voice_revision == "":
                yield "voice", not_ready(voice)
            yield from engine.refusals(item)
            return
        names = ", ".join(sorted(self.engines)) or "none so far: start a worker"
        yield (
            "model",
            ModelNotFoundError(
                f"No worker has offered the model {item.model[:80]!r}; there is: {names}."
            ),
        )


def voice_names(parts: Iterable[object]) -> list[str]:
    """The names of voices in a body, less those that none can have."""
    named = (part.get("voice") for part in parts if isinstance(part, dict))
    names = (name for name in named if isinstance(name, str) and VOICE_NAME.fullmatch(name))
    return list(dict.fromkeys(names))


def unlisted_voices(items: Iterable[ItemInput]) -> set[str]:
    """The voices that are kept for the sake of these items."""
    named = {item.voice for item in items if item.voice_revision is not None}
    return {name for name in named if UNLISTED_NAME.fullmatch(name)}


def not_ready(voice: EnrolledVoice) -> VoiceNotFoundError:
    """Why an enrolled voice can't be spoken with."""
    if voice.error is not None:
        return VoiceNotFoundError(
            f"The voice {voice.name!r} was refused: {voice.error.message} Enrol it again."
        )
    return VoiceNotFoundError(
        f"The prompt of the voice {voice.name!r} is still being checked; try again in a moment."
    )


def rules_of(job: JobDefaults, count: int, retention_seconds: float | None) -> JobRules:
    """What a job of so many items says of its end; the stricter of two limits counts."""
    most = job.max_failures
    if isinstance(most, str):
        most = count * int(most.removesuffix("%")) // 100
    kept = job.output_expires_after
    return JobRules(
        job.deadline_seconds,
        0 if job.on_item_error == "stop" else most,
        retention_seconds if kept is None else kept.seconds,
        job.concatenate_silence_ms if job.concatenate else None,
        Limits(job.max_output_seconds, job.max_item_seconds, job.max_memory_mb),
    )


def standing_of(job: JobDefaults, items: Sequence[ItemInput], fairness_key: str | None) -> Standing:
    """Where a job stands among others, as it says or as fits it."""
    chosen = job.job_class or default_class(len(item.text) for item in items)
    return Standing(JobClass(chosen), job.priority, job.fairness_key or fairness_key or "")


def check_fairness_key(key: str | None) -> None:
    """Raise for a header that can't be used."""
    try:
        if key is not None:
            FAIRNESS_KEY.validate_python(key)
    except ValidationError as error:
        raise InputError(
            "X-Fairness-Key: give 1 to 64 of A-Z a-z 0-9 . _ - or leave it out."
        ) from error
