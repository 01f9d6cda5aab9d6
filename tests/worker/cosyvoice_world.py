"""A model folder, voices and the stand-in checkout, for the engine ``cosyvoice``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import soundfile  # type: ignore[import-untyped]

from voicemill.voices import Capabilities
from worker.engines.base import Segment, SynthesisOptions
from worker.engines.cosyvoice import CosyVoiceEngine

CHECKOUT = Path(__file__).parents[1] / "cosyvoice_stand_in"
PACKAGES = ("cosyvoice", "wetext", "modelscope", "vllm", "matcha")
PLAN = "flow.decoder.estimator.fp32.mygpu.plan"
SAID = "hope you will do better than me"
PITCH_HZ = 200
RATE_HZ = 24_000
SYSTEM = "You are a helpful assistant."
END = "<|endofprompt|>"


@dataclass
class World:
    """What a test of the engine needs, in a folder of its own."""

    home: Path
    engine: CosyVoiceEngine = field(default_factory=CosyVoiceEngine)
    capabilities: Capabilities | None = None

    @property
    def model_dir(self) -> Path:
        return self.home / "model"

    @property
    def voices_dir(self) -> Path:
        return self.home / "voices"

    def make_model(self, version: int = 3) -> None:
        """A folder with what the stand-in looks for."""
        blank = self.model_dir / "CosyVoice-BlankEN"
        blank.mkdir(parents=True)
        for name in ("llm.pt", "flow.pt", "hift.pt", "campplus.onnx"):
            (self.model_dir / name).write_text("weights")
        (self.model_dir / f"speech_tokenizer_v{version}.onnx").write_text("weights")
        (self.model_dir / f"cosyvoice{version}.yaml").write_text(f"sample_rate: {RATE_HZ}\n")
        for name in ("config.json", "vocab.json", "merges.txt", "model.safetensors"):
            (blank / name).write_text("{}")

    def make_voice(
        self,
        name: str,
        *,
        pitch: float = PITCH_HZ,
        said: str | None = SAID,
        language: str | None = None,
        seconds: float = 2.0,
        rate: int = RATE_HZ,
    ) -> Path:
        """A clip of one tone, and what is said in it."""
        self.voices_dir.mkdir(exist_ok=True)
        path = self.voices_dir / f"{name}.wav"
        at = np.arange(int(seconds * rate)) / rate
        soundfile.write(str(path), 0.3 * np.sin(2 * np.pi * pitch * at + 0.1), rate)
        if language is not None:
            about = {"language": language, **({"text": said} if said else {})}
            path.with_suffix(".json").write_text(json.dumps(about), "utf-8")
        elif said is not None:
            path.with_suffix(".txt").write_text(f"{said}\n", "utf-8")
        return path

    def options(self, **others: Any) -> dict[str, Any]:
        """``VOICEMILL_ENGINE_OPTIONS``; what is set to nothing is left out."""
        given: dict[str, Any] = {"checkout": str(CHECKOUT), "model_dir": str(self.model_dir)}
        if self.voices_dir.exists():
            given["voices_dir"] = str(self.voices_dir)
        return {name: value for name, value in {**given, **others}.items() if value is not None}

    def load(self, **options: Any) -> CosyVoiceEngine:
        """The engine, loaded."""
        self.capabilities = self.engine.load(self.options(**options))
        return self.engine

    def speak(
        self, *texts: str, voice: str = "ann", seed: int | None = 1, **options: Any
    ) -> list[Any]:
        """What came of each text."""
        segments = [Segment(text, seed) for text in texts]
        return list(self.engine.synthesize(segments, voice, SynthesisOptions(**options)))

    @property
    def model(self) -> Any:
        """The stand-in's object."""
        return self.engine._upstream.model

    @property
    def heard(self) -> list[Any]:
        """What its language model was given, call by call."""
        return list(self.model.model.llm.heard)

    def sessions(self) -> list[int]:
        """How much the model keeps of calls."""
        inner = self.model.model
        kept = (inner.tts_speech_token_dict, inner.llm_end_dict, inner.hift_cache_dict)
        return [len(one) for one in kept]

    @staticmethod
    def module(name: str) -> Any:
        """A module of the checkout, as the engine has it or will have it."""
        if str(CHECKOUT) not in sys.path:
            sys.path.append(str(CHECKOUT))
        return import_module(name)


def forget(packages: Sequence[str] = PACKAGES) -> None:
    """Have the checkout imported anew."""
    for name in [one for one in sys.modules if one.partition(".")[0] in packages]:
        del sys.modules[name]


def pitch_of(samples: Any) -> float:
    """Hz, by the zero crossings."""
    return float(np.count_nonzero(np.diff(np.signbit(samples))) / 2 / (len(samples) / RATE_HZ))
