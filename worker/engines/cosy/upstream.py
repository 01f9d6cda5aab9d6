"""The checkout as a module: imported and loaded without what it does to the process around it."""

from __future__ import annotations

import logging
import multiprocessing
import random
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from voicemill.errors import SettingsError
from worker.engines.base import refusal
from worker.engines.cosy.options import ANEW, KNOWN_COMMIT, MATCHA, CosyVoiceOptions
from worker.engines.torch_memory import fault_of

NEEDED = (
    "add_zero_shot_spk",
    "sample_rate",
    "frontend.spk2info",
    "frontend.tokenizer.special_tokens",
    "frontend.tokenizer.encode",
    "frontend._extract_text_token",
    "model.tts",
    "model.llm_job",
    "model.token2wav",
    "model.llm.inference",
    "model.flow.token_mel_ratio",
    "model.tts_speech_token_dict",
    "model.llm_end_dict",
    "model.hift_cache_dict",
)
"""What the engine stands on; all but the first two are no public names."""
NORMALISERS = ("ttsfrd", "wetext")
"""Downloads at every load, and is left out in silence where that fails; we need neither."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A loaded model and what belongs to it."""

    model: Any
    torch: Any
    """The torch that it computes with."""
    seed_all: Any
    """Seeds every source of chance of the process."""
    paths: tuple[str, ...]
    """What was added to Python's search path."""

    def leave_path(self) -> None:
        """Have Python find the checkout no more."""
        sys.path[:] = [path for path in sys.path if path not in self.paths]


def open_model(options: CosyVoiceOptions) -> Upstream:
    """Load the model.

    Raises ``SettingsError`` for a checkout, a folder or an option that can't be used, and
    ``OutOfMemoryError`` where the device is too small.
    """
    wanted = (str(options.checkout), str(options.checkout / MATCHA))
    added = tuple(path for path in wanted if path not in sys.path)
    sys.path += added
    with ExitStack() as around:
        around.enter_context(own_logging())
        around.enter_context(redirect_stdout(sys.stderr))
        cli, common = modules(options)
        torch = cli.torch
        around.enter_context(own_chance(torch))
        around.enter_context(hidden(*NORMALISERS))
        on_cuda = torch.cuda.is_available()
        if not on_cuda:
            refuse_without_cuda(options)
            torch.set_num_threads(options.threads)
        if options.vllm:
            prepare_vllm()
        model = construct(getattr(cli, f"CosyVoice{options.version}"), options)
    for name in NEEDED:
        try:
            attrgetter(name)(model)
        except AttributeError as error:
            raise refusal(
                "checkout",
                str(options.checkout),
                f"one that has {name}, as CosyVoice has at commit {KNOWN_COMMIT}",
            ) from error
    # What a spk2info.pt of the folder brought: voices that nobody enrolled here.
    model.frontend.spk2info.clear()
    return Upstream(model, torch, common.set_all_random_seed, added)


def modules(options: CosyVoiceOptions) -> tuple[Any, Any]:
    """``cli.cosyvoice`` and ``utils.common`` of the checkout; raises ``SettingsError``."""
    try:
        cli = import_module("cosyvoice.cli.cosyvoice")
        common = import_module("cosyvoice.utils.common")
        calls: Any = import_module("cosyvoice.cli.model")
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"CosyVoice needs the package {error.name}, which {sys.executable} has not; install "
            f"{options.checkout / 'requirements.txt'} for it."
        ) from error
    if not Path(str(cli.__file__)).resolve().is_relative_to(options.checkout):
        raise refusal(
            "checkout", str(options.checkout), f"{cli.__file__}, which comes first in this Python"
        )
    # It names its calls by uuid1, for which a socket is opened to read the network card's address.
    calls.uuid = SimpleNamespace(uuid1=uuid.uuid4)
    return cli, common


def construct(model: Any, options: CosyVoiceOptions) -> Any:
    """An object of the checkout's class; its own errors by our names."""
    try:
        return model(
            str(options.model_dir),
            load_trt=options.trt,
            load_vllm=options.vllm,
            fp16=options.fp16,
        )
    # Upstream raises anything: yaml's errors, torch's, assertions.
    except Exception as error:
        fault = fault_of(error)
        if fault is not None:
            raise fault from error
        if options.trt and "failed to load trt" in str(error):
            command = options.build("trt", Path(sys.executable), ANEW)
            raise refusal("trt", True, f"a plan for this GPU and TensorRT: {command}") from error
        raise refusal(
            "model_dir",
            str(options.model_dir),
            f"a model that loads ({type(error).__name__}: {error})",
        ) from error


def refuse_without_cuda(options: CosyVoiceOptions) -> None:
    """Raise ``SettingsError`` for what upstream would leave out, or fail at, without CUDA."""
    for name in ("fp16", "trt", "vllm"):
        if getattr(options, name):
            raise refusal(name, True, "false, or a machine on which torch finds CUDA")


def prepare_vllm() -> None:
    """Have vLLM know the model; raises ``SettingsError`` where it can't run."""
    if multiprocessing.current_process().daemon:
        raise refusal(
            "vllm", True, "false: vLLM starts processes of its own, and this one may not do that"
        )
    try:
        registry = import_module("vllm").ModelRegistry
    except ModuleNotFoundError as error:
        raise refusal("vllm", True, f"false, or install {error.name}") from error
    own = import_module("cosyvoice.vllm.cosyvoice2").CosyVoice2ForCausalLM
    registry.register_model("CosyVoice2ForCausalLM", own)


@contextmanager
def own_logging() -> Iterator[None]:
    """The root logger is afterwards as it was: upstream sets it to DEBUG and gives it a handler."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


@contextmanager
def own_chance(torch: Any) -> Iterator[None]:
    """What others draw is what they would have drawn without the block."""
    ours, numpys, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """These packages can't be imported inside the block."""
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None: not there
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
