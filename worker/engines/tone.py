"""A tone in place of a voice: deterministic, and able to misbehave when told. For tests and load.

Options, all of them off by default:

``load_seconds``            time that loading takes
``fail_load_while``         a path: loading fails as long as there is something
``hang_load_while``         the same, loading being blocked as by ``hang``
``fail_warm_up_while``      the same, the engine loading and the calls of its warm-up failing
``seconds_per_segment``     time that each segment takes
``seconds_per_character``   and each of its characters
``slow_factor``             each segment takes this many times as long as the one before
``leak_host_mb``            MiB of host memory, touched, that each segment leaves behind
``leak_device_mb``          the same of the first GPU's memory, by the driver's CUDA library
``cache_device_mb``         the same, and told as held by an allocator that has no use for it
``fail``                    this many calls raise; or ``"always"``
``crash``                   the same, the process dying by SIGKILL
``hang``                    the same, blocked for good in native code that no signal ends
``seize``                   the same, with Python's lock, so that no other thread runs on
``poison``                  the same, raising what says that the process can't go on
``memory_characters``       calls of more characters in all run out of memory
``output``                  what comes out: ``normal silence nan empty loud``

Calls are counted in each process, from the first one after its warm-up.

A text steers its own segment by directives, which are not spoken and have no length:
``{tone:fail}`` (this segment alone fails), ``{tone:crash}``, ``{tone:hang}``, ``{tone:seize}``,
``{tone:poison}``, ``{tone:silence}``, ``{tone:nan}``, ``{tone:empty}``, ``{tone:loud}``,
``{tone:seconds=2.5}`` (takes that much longer); ``{tone:crash-once=PATH}`` and its like for the
other four only do it while PATH does not exist, and make it first. Whoever can submit text can do
all this: it is no engine to offer to strangers.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from voicemill.errors import (
    EnginePoisonedError,
    OutOfMemoryError,
    PromptAudioInvalidError,
    SynthesisError,
    VoiceNotFoundError,
)
from voicemill.voices import Capabilities, Voice
from worker.cached_memory import CachedMemory
from worker.engines.base import (
    WARM_UP_CALLS,
    Prompt,
    Samples,
    Segment,
    SynthesisOptions,
    refusal,
    refuse_unknown,
)
from worker.engines.cuda import CudaError, DeviceMemory

SAMPLE_RATE_HZ = 24000
AMPLITUDE = 0.5
LOUD_AMPLITUDE = 3.0
SECONDS_PER_CHARACTER = 0.06
LEAST_SECONDS = 0.25
LANGUAGES = ("en", "de", "es", "fr", "hi", "ja", "zh")
BASE_HZ = {"low": 110.0, "high": 330.0}
CLONED_HZ = 700.0
"""The lowest that a cloned voice may have; the highest is an octave above."""
DIRECTIVE = re.compile(r"\{tone:([a-z-]+)(?:=([^{}]*))?\}")

Output = Literal["normal", "silence", "nan", "empty", "loud"]
OUTPUTS: tuple[Output, ...] = ("normal", "silence", "nan", "empty", "loud")
TROUBLES = ("fail", "crash", "hang", "seize", "poison")
OBSTACLES = ("fail_load_while", "hang_load_while", "fail_warm_up_while")


@dataclass(frozen=True, slots=True)
class ToneOptions:
    """How the engine is to behave; see the module."""

    load_seconds: float = 0.0
    fail_load_while: str | None = None
    hang_load_while: str | None = None
    fail_warm_up_while: str | None = None
    seconds_per_segment: float = 0.0
    seconds_per_character: float = 0.0
    slow_factor: float = 1.0
    leak_host_mb: float = 0.0
    leak_device_mb: float = 0.0
    cache_device_mb: float = 0.0
    fail: float = 0
    crash: float = 0
    hang: float = 0
    seize: float = 0
    poison: float = 0
    memory_characters: float = float("inf")
    output: Output = "normal"

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> ToneOptions:
        """Raises ``SettingsError`` naming the option that can't be used."""
        refuse_unknown("tone", options, [one.name for one in fields(cls)])
        return cls(**{name: read_option(name, value) for name, value in options.items()})


def read_option(name: str, value: Any) -> Any:
    """The value of one option, checked."""
    if name == "output":
        if value in OUTPUTS:
            return value
        raise refusal(name, value, f"one of {', '.join(OUTPUTS)}")
    if name in OBSTACLES:
        if isinstance(value, str) and value:
            return value
        raise refusal(name, value, "a path")
    if name in TROUBLES:
        if value == "always":
            return float("inf")
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise refusal(name, value, 'a number of calls, or "always"')
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6:
        return float(value)
    raise refusal(name, value, "a number of 0 or more")


class ToneEngine:
    """Length follows the number of characters, pitch the text, voice and seed.

    The pitch of an enrolled voice follows from its prompt.
    """

    def __init__(self) -> None:
        self._options = ToneOptions()
        self._calls = 0
        self._slowness = 1.0
        self._leak: list[bytes] = []
        self._device: DeviceMemory | None = None
        self._cached = 0
        self._base_hz = dict(BASE_HZ)

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Take the options; nothing else is needed."""
        self._options = ToneOptions.read(options)
        self._device = device_memory(self._options)
        time.sleep(self._options.load_seconds)
        self._meet("fail_load_while")
        self._meet("hang_load_while")
        return Capabilities(
            engine="tone",
            model_revision="1",
            sample_rate=SAMPLE_RATE_HZ,
            voices=(
                Voice("low", LANGUAGES, "A low tone"),
                Voice("high", LANGUAGES, "A high tone"),
            ),
            min_speed=0.25,
            max_speed=4.0,
            seed=True,
            cloning=True,
            max_batch=4,
            deterministic=True,
            engine_licence="Apache-2.0",
        )

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Sound each segment, in the time that the options say."""
        if voice not in self._base_hz:
            raise VoiceNotFoundError(f"The tone engine has no voice {voice!r}.")
        self._calls += 1
        worked = self._calls - WARM_UP_CALLS
        if worked <= 0:
            self._meet("fail_warm_up_while")
        for trouble in TROUBLES:
            if 0 < worked <= getattr(self._options, trouble):
                bring(trouble)
        if sum(len(segment.text) for segment in batch) > self._options.memory_characters:
            raise OutOfMemoryError("The tone engine was told to have no memory for so much text.")
        return [self._sound(segment, voice, options) for segment in batch]

    def enrol(self, voice: str, prompt: Prompt) -> None:
        """Have a voice of a pitch that the prompt's bytes and text decide."""
        try:
            heard = prompt.audio.read_bytes()
        except OSError as error:
            raise PromptAudioInvalidError(f"The prompt can't be read: {error.strerror}.") from error
        self._base_hz[voice] = cloned_hz(heard, prompt.text)

    def forget(self, voice: str) -> None:
        """Have that voice no more."""
        self._base_hz.pop(voice, None)

    def after_batch(self) -> None:
        """Nothing to give back; what leaked stays."""

    def unload(self) -> None:
        """Let go of what leaked of the host; only the end of the process frees the device."""
        self._leak.clear()
        self._base_hz = dict(BASE_HZ)

    def cached_memory(self) -> CachedMemory | None:
        """What it holds of the device; nothing unless it was told to have a cache."""
        if self._device is None or not self._options.cache_device_mb:
            return None
        return CachedMemory(self._device.taken, self._device.taken - self._cached)

    def _meet(self, obstacle: str) -> None:
        path = getattr(self._options, obstacle)
        if path is not None and Path(path).exists():
            bring(obstacle.partition("_")[0])

    def _sound(
        self, segment: Segment, voice: str, options: SynthesisOptions
    ) -> Samples | SynthesisError:
        directives = {name: value for name, value in DIRECTIVE.findall(segment.text)}
        spoken = DIRECTIVE.sub("", segment.text).strip()
        self._work(len(spoken), float(directives.get("seconds") or 0.0))
        try:
            obey(directives)
        except EnginePoisonedError:
            raise
        except SynthesisError as error:
            return error
        told = next((output for output in OUTPUTS if output in directives), None)
        hz = self._base_hz[voice] * interval(spoken, segment.seed)
        samples = sound(seconds(spoken, options.speed), hz)
        return spoiled(samples, told or self._options.output)

    def _work(self, characters: int, more_seconds: float) -> None:
        one = self._options
        seconds = one.seconds_per_segment + one.seconds_per_character * characters
        time.sleep(seconds * self._slowness + more_seconds)
        self._slowness *= one.slow_factor
        if one.leak_host_mb:
            self._leak.append(b"\x01" * round(one.leak_host_mb * 2**20))
        self._take(one.leak_device_mb)
        self._cached += self._take(one.cache_device_mb)

    def _take(self, mebibytes: float) -> int:
        size = math.ceil(mebibytes * 2**20)
        if self._device and size:
            self._device.take(size)
        return size


def device_memory(options: ToneOptions) -> DeviceMemory | None:
    """Where an option asks for it.

    Raises ``SettingsError`` where there is no device, ``OutOfMemoryError`` where it is full.
    """
    name = "leak_device_mb" if options.leak_device_mb else "cache_device_mb"
    asked = getattr(options, name)
    if not asked:
        return None
    try:
        return DeviceMemory()
    except (OSError, CudaError) as error:
        remedy = f"0, or a machine with an NVIDIA driver and a device ({error})"
        raise refusal(name, asked, remedy) from error


def obey(directives: Mapping[str, str]) -> None:
    """Bring the trouble that a text asks for."""
    for trouble in TROUBLES:
        if trouble in directives or is_first(directives.get(f"{trouble}-once")):
            bring(trouble)


def is_first(path: str | None) -> bool:
    """True for whoever makes the file at ``path``."""
    if not path:
        return False
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def bring(trouble: str) -> None:
    """Fail, crash, hang, seize up or be poisoned, now."""
    match trouble:
        case "fail":
            raise SynthesisError("The tone engine was told to fail.")
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            hang(ctypes.CDLL(None))
        case "seize":
            hang(ctypes.PyDLL(None))
        case "poison":
            raise EnginePoisonedError("The tone engine was told to be poisoned.")


def hang(libc: ctypes.CDLL) -> None:
    """Wait for a lock that this thread holds: no signal ends it; by a ``PyDLL`` no thread runs."""
    mutex = ctypes.create_string_buffer(128)
    libc.pthread_mutex_init(mutex, None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def pitch(text: str, voice: str, seed: int | None = None) -> float:
    """The tone's frequency (Hz): the voice's own, up to an octave higher as the text says."""
    return BASE_HZ[voice] * interval(text, seed)


def cloned_hz(heard: bytes, text: str) -> float:
    """The own frequency (Hz) of a voice that is cloned from these bytes of a file and this text."""
    digest = hashlib.sha256(hashlib.sha256(heard).digest() + text.encode()).digest()
    return float(CLONED_HZ * 2 ** (int.from_bytes(digest[:2], "big") / 2**16))


def interval(text: str, seed: int | None = None) -> float:
    """How many times higher than its voice's own frequency a text sounds: 1 up to 2."""
    steps = hashlib.sha256(f"{seed or 0}/{text}".encode()).digest()[0] % 24
    return float(2 ** (steps / 24))


def seconds(text: str, speed: float = 1.0) -> float:
    """How long a text without directives sounds."""
    return max(LEAST_SECONDS, SECONDS_PER_CHARACTER * len(text) / speed)


def tone(text: str, voice: str, speed: float, seed: int | None) -> Samples:
    """The samples of a text in one of the engine's own voices."""
    return sound(seconds(text, speed), pitch(text, voice, seed))


def sound(length: float, hz: float) -> Samples:
    """So many seconds of one frequency."""
    phase = np.arange(round(length * SAMPLE_RATE_HZ)) * (2 * np.pi * hz / SAMPLE_RATE_HZ)
    samples: Samples = (AMPLITUDE * np.sin(phase)).astype(np.float32)
    return samples


def spoiled(samples: Samples, output: Output) -> Samples:
    """The samples, or what an engine out of order would give instead."""
    match output:
        case "normal":
            return samples
        case "silence":
            return np.zeros_like(samples)
        case "nan":
            return np.full_like(samples, np.nan)
        case "empty":
            return samples[:0]
        case "loud":
            loud: Samples = samples * np.float32(LOUD_AMPLITUDE / AMPLITUDE)
            return loud
