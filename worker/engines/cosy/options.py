"""What ``VOICEMILL_ENGINE_OPTIONS`` names for ``cosyvoice``, and whether it is on the disk."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from voicemill.errors import SettingsError
from worker.engines.base import refusal, refuse_unknown
from worker.environment import thread_share
from worker.missing import Missing

ROOT = Path(__file__).resolve().parents[3]
BUILD, ANEW = "worker.engines.cosy.build", "--anew"
"""The command that builds what ``trt`` and ``vllm`` read, and its flag for what is there."""
SWITCHES = ("fp16", "trt", "vllm")
VERSIONS = (3, 2)
MATCHA = "third_party/Matcha-TTS"
CHECKOUT_FILES = (
    "cosyvoice/cli/cosyvoice.py",
    "cosyvoice/cli/frontend.py",
    "cosyvoice/cli/model.py",
    "cosyvoice/utils/common.py",
    f"{MATCHA}/matcha",
)
BLANK = "CosyVoice-BlankEN"
MODEL_FILES = (
    "cosyvoice{version}.yaml",
    "llm.pt",
    "flow.pt",
    "hift.pt",
    "campplus.onnx",
    "speech_tokenizer_v{version}.onnx",
    f"{BLANK}/config.json",
    f"{BLANK}/vocab.json",
    f"{BLANK}/merges.txt",
    f"{BLANK}/model.safetensors",
)
HUB_TOOL = "huggingface-cli"
POINTER = b"version https://git-lfs"
UPSTREAM = "https://github.com/FunAudioLLM/CosyVoice"
KNOWN_COMMIT = "ace7c47"
MODELS = {3: "FunAudioLLM/Fun-CosyVoice3-0.5B-2512", 2: "FunAudioLLM/CosyVoice2-0.5B"}
"""Their names where upstream publishes them, by version."""


@dataclass(frozen=True, slots=True)
class CosyVoiceOptions:
    """What to load; see ``worker.engines.cosyvoice``."""

    checkout: Path
    model_dir: Path
    version: int
    """2 or 3, by the model folder."""
    voices_dir: Path | None = None
    language: str = "zh"
    fp16: bool = False
    trt: bool = False
    vllm: bool = False
    threads: int = field(default_factory=thread_share)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> CosyVoiceOptions:
        """Raises ``SettingsError``, which names all that is missing at once."""
        chosen = cls.parse(options)
        chosen.refuse_missing()
        return chosen

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> CosyVoiceOptions:
        """The same, without a look into the folders but for the version of the model."""
        known = [one.name for one in fields(cls) if one.name != "version"]
        refuse_unknown("cosyvoice", options, known)
        for name in SWITCHES:
            if not isinstance(options.get(name, False), bool):
                raise refusal(name, options[name], "true or false")
        threads = options.get("threads", 1)
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise refusal("threads", threads, "a whole number of 1 or more")
        checkout = folder(options, "checkout", "the folder of a CosyVoice checkout")
        model_dir = folder(options, "model_dir", "the folder of a CosyVoice 3 or 2 model")
        voices = options.get("voices_dir")
        given = {
            **options,
            "checkout": checkout,
            "model_dir": model_dir,
            "version": version_of(model_dir),
            "voices_dir": voices and folder(options, "voices_dir", "a folder of voices"),
        }
        chosen = cls(**given)
        chosen.refuse_pairs()
        return chosen

    def refuse_pairs(self) -> None:
        """Raise ``SettingsError`` for options that do not go together."""
        if self.version == 3 and self.fp16 and self.trt:
            raise SettingsError(
                "VOICEMILL_ENGINE_OPTIONS: fp16 and trt can't be used together with CosyVoice 3, "
                "whose TensorRT estimator gives NaN in half precision; leave one of them out."
            )

    def refuse_missing(self) -> None:
        """Raise ``SettingsError`` with every file that is needed and is not there."""
        here = Path(sys.executable)
        listed = "; ".join(f"{one.what} ({one.remedy})" for one in self.missing_files(here))
        if listed:
            raise SettingsError(
                "VOICEMILL_ENGINE_OPTIONS: cosyvoice can't start without what is missing or not "
                f"whole: {listed}."
            )

    def missing_files(self, python: Path) -> Iterator[Missing]:
        """Every file that is needed and is not there, or not whole; ``python`` is the engine's."""
        yield from missing_of_checkout(self.checkout)
        yield from missing_of_model(self.model_dir, self.version, python)
        for name in self.unbuilt():
            command = self.build(self.artefacts()[name], python)
            yield Missing(str(self.model_dir / name), f"build it once: {command}", command)

    def unbuilt(self) -> list[str]:
        """Names of the artefacts that are not there, or not whole."""

        def is_whole(name: str, what: str) -> bool:
            path = self.model_dir / name
            built = path / "config.json" if what == "vllm" else path
            return built.is_file() and built.stat().st_size > 0

        return [name for name, what in self.artefacts().items() if not is_whole(name, what)]

    def artefacts(self) -> dict[str, str]:
        """What is built once and then only read: its option by its name in the model folder."""
        precision = "fp16" if self.fp16 else "fp32"
        plan = f"flow.decoder.estimator.{precision}.mygpu.plan"
        return {**({"vllm": "vllm"} if self.vllm else {}), **({plan: "trt"} if self.trt else {})}

    def build(self, what: str, python: Path, *more: str) -> str:
        """The command that builds an artefact, from any folder; ``python`` is the engine's."""
        where = ("--checkout", str(self.checkout), "--model-dir", str(self.model_dir))
        precision = ("--fp16",) if self.fp16 and what == "trt" else ()
        words = (str(python), "-m", BUILD, *where, f"--{what}", *precision, *more)
        return f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.join(words)}"

    def model_revision(self) -> str:
        """A short name that changes with the configuration, the size of the weights, the flags."""
        yaml = self.model_dir / f"cosyvoice{self.version}.yaml"
        digest = hashlib.sha256(yaml.read_bytes())
        for name in MODEL_FILES[1:6]:
            path = self.model_dir / name.format(version=self.version)
            digest.update(f"{path.name} {path.stat().st_size}".encode())
        digest.update(f"{self.fp16} {self.trt} {self.vllm}".encode())
        return digest.hexdigest()[:12]


def missing_of_checkout(checkout: Path) -> Iterator[Missing]:
    """What a folder lacks to be upstream's checkout."""
    for name in CHECKOUT_FILES:
        path = checkout / name
        if path.exists():
            continue
        if name.startswith(MATCHA):
            update = "submodule update --init --recursive"
            remedy = f"run in the checkout: git {update}"
            yield Missing(str(path), remedy, f"git -C {checkout} {update}")
        else:
            command = f"git -C {checkout} checkout {KNOWN_COMMIT}"
            yield Missing(str(path), "not in this checkout", command)


def missing_of_model(model_dir: Path, version: int, python: Path) -> Iterator[Missing]:
    """What a folder lacks to be a model of this version; ``python`` is the engine's."""
    for name in MODEL_FILES:
        path = model_dir / name.format(version=version)
        if not path.is_file() or not path.stat().st_size:
            yield Missing(
                str(path), "download the model again", download(model_dir, version, python)
            )
        elif is_pointer(path):
            pull = f"git -C {model_dir} lfs pull"
            yield Missing(str(path), f"a Git LFS pointer; run: {pull}", pull)


def download(model_dir: Path, version: int, python: Path) -> str:
    """The command that brings a model, by the tool that came with the engine's packages."""
    beside = python.parent / HUB_TOOL
    tool = shlex.quote(str(beside)) if beside.is_file() else HUB_TOOL
    return f"{tool} download {MODELS[version]} --local-dir {shlex.quote(str(model_dir))}"


def folder(options: Mapping[str, Any], name: str, what: str) -> Path:
    """The folder that an option names; raises ``SettingsError`` where it is none."""
    value = options.get(name)
    path = Path(value).expanduser() if isinstance(value, str) else None
    if path is None or not path.is_dir():
        raise refusal(name, value, what)
    return path.resolve()


def version_of(model_dir: Path) -> int:
    """Which CosyVoice a model is of; raises ``SettingsError`` for another one."""
    for version in VERSIONS:
        if (model_dir / f"cosyvoice{version}.yaml").is_file():
            return version
    raise refusal("model_dir", str(model_dir), "a folder with cosyvoice3.yaml or cosyvoice2.yaml")


def is_pointer(path: Path) -> bool:
    """True for what a clone without Git LFS has in place of a large file."""
    with path.open("rb") as file:
        return file.read(len(POINTER)) == POINTER
