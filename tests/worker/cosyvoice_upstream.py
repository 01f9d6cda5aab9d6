"""Tries the engine ``cosyvoice`` on upstream's own code, with small models of random weights.

``python -m tests.worker.cosyvoice_upstream CHECKOUT`` needs the packages of the checkout, and no
GPU, no model and no network. It is no part of the suite. What is spoken is noise: it shows that the
engine fits the code of the checkout, not how that sounds.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.cosyvoice_world import World
from voicemill.errors import SynthesisError
from worker.engines.base import Segment, SynthesisOptions

BASE_TOKENS = 151_643
"""Qwen2's own, before those of CosyVoice, of which upstream has one by its number."""
END_OF_PROMPT = 151_646
SPEECH_TOKENS = 6561
SEEDS = range(12)
SMALLER = {
    "llm_input_size": 32,
    "llm_output_size": 32,
    "channels": 32,
    "dim": 32,
    "depth": 1,
    "heads": 2,
    "dim_head": 16,
    "base_channels": 64,
    "cond_channels": 32,
    "num_blocks": 1,
    "num_mid_blocks": 1,
    "n_blocks": 1,
}
NUMBER = re.compile(r"^(\s*)(\w+): (\d+)$", re.MULTILINE)


def main(checkout: Path) -> None:
    """Say what holds of each version; ends with the first thing that does not."""
    for version in (3, 2):
        with tempfile.TemporaryDirectory() as folder:
            try_version(World(Path(folder)), checkout, version)


def try_version(world: World, checkout: Path, version: int) -> None:
    """Load, speak in every manner, fail, unload."""
    make_model(world.model_dir, checkout, version)
    world.make_voice("ann", language="en", seconds=3)
    root, chance = logging.getLogger(), random.getstate()
    before = (root.level, [*root.handlers])
    world.load(checkout=str(checkout))
    assert (root.level, root.handlers) == before
    assert random.getstate() == chance
    assert world.model.frontend.text_frontend == ""
    assert world.model.frontend.tokenizer.encode("<|endofprompt|>") == [END_OF_PROMPT]
    say(version, "loaded; logging and chance as they were, no normaliser")
    manners: dict[str, dict[str, Any]] = {
        "zero-shot": {},
        "another language": {"language": "zh"},
        "a dialect": {"named": {"dialect": "sichuan"}},
        "an instruction": {"instructions": "Whisper.<|endofprompt|>"},
        "speed": {"speed": 1.5},
    }
    for name, manner in manners.items():
        say(version, f"{name}: {spoken(world, manner)}")
    same(world)
    say(version, "the same seed, the same samples")
    if version == 3:
        lose_the_prompt(world)
        say(version, "an assertion in the thread has its name and place")
    inner = weakref.ref(world.model.model)
    world.engine.unload()
    assert inner() is None
    say(version, "unloaded, and gone")


def spoken(world: World, manner: dict[str, Any]) -> str:
    """How many seeds gave speech; random weights often end at once, or never."""
    lengths, faults = [], set()
    for seed in SEEDS:
        (sound,) = say_one(world, seed, manner)
        assert world.sessions() == [0, 0, 0]
        if isinstance(sound, SynthesisError):
            faults.add((sound.code, sound.message))
        else:
            assert (sound.dtype, sound.ndim) == (np.float32, 1)
            lengths.append(len(sound))
    assert lengths, f"no seed gave speech: {faults}"
    assert {code for code, _ in faults} <= {"invalid_audio"}, faults
    return f"{len(lengths)} of {len(SEEDS)} seeds spoke, {min(lengths)} to {max(lengths)} samples"


def same(world: World) -> None:
    """A seed repeats, whatever was spoken between."""
    first = [say_one(world, seed, {})[0] for seed in SEEDS]
    again = [say_one(world, seed, {})[0] for seed in reversed(SEEDS)]
    for one, other in zip(first, reversed(again), strict=True):
        assert type(one) is type(other)
        if not isinstance(one, SynthesisError):
            assert np.array_equal(one, other)


def lose_the_prompt(world: World) -> None:
    """What upstream asserts in its thread comes out by name."""
    engine = world.engine
    tokens, count = engine._tokens("no end of a prompt")
    given = {
        name: value
        for name, value in engine._own_timbre("ann").features.items()
        if not name.startswith(("prompt_text", "llm_prompt_speech_token"))
    }
    with pytest.raises(SynthesisError, match=r"AssertionError at llm\.py"):
        engine._watched.speak(
            {**given, "text": tokens, "text_len": count}, text_tokens=5, speed=1.0, seed=1
        )
    assert world.sessions() == [0, 0, 0]


def say_one(world: World, seed: int, manner: dict[str, Any]) -> list[Any]:
    """One short segment."""
    return list(world.engine.synthesize([Segment("ok", seed)], "ann", SynthesisOptions(**manner)))


def say(version: int, what: str) -> None:
    """One line of what holds."""
    sys.stderr.write(f"ok  CosyVoice {version}  {what}\n")


def make_model(folder: Path, checkout: Path, version: int) -> None:
    """A folder as upstream's, by the configuration of the checkout with smaller numbers."""
    for path in (checkout, checkout / "third_party/Matcha-TTS"):
        if str(path) not in sys.path:
            sys.path.append(str(path))
    import torch
    from hyperpyyaml import load_hyperpyyaml

    blank = folder / "CosyVoice-BlankEN"
    blank.mkdir(parents=True)
    make_blank(blank)
    example = checkout / f"examples/libritts/cosyvoice{version}/conf/cosyvoice{version}.yaml"
    yaml = folder / f"cosyvoice{version}.yaml"
    yaml.write_text(smaller(example.read_text("utf-8"), version), "utf-8")
    with yaml.open() as file:
        parts = load_hyperpyyaml(file, overrides={"qwen_pretrain_path": str(blank)})
    bias = parts["llm"].llm_decoder.bias
    if bias is not None:
        # With random weights the few tokens that end speech would never come.
        bias.data[SPEECH_TOKENS:] += 1.0
    for name in ("llm", "flow", "hift"):
        torch.save(parts[name].state_dict(), folder / f"{name}.pt")
    make_graphs(folder, version)


def smaller(yaml: str, version: int) -> str:
    """The configuration, without what only training needs."""
    kept = yaml[: yaml.index("# gan related")]
    for first, behind in (
        ("get_tokenizer:", "tokenize: !"),
        ("feat_extractor: !", "compute_fbank:"),
    ):
        kept += yaml[yaml.index(first) : yaml.index(behind)]
    shrinks = {name: size for name, size in SMALLER.items() if version == 3 or "llm" in name}
    if version == 2:
        shrinks |= {"num_blocks": 2, "num_mid_blocks": 1, "n_blocks": 1}
    return NUMBER.sub(lambda line: f"{line[1]}{line[2]}: {shrinks.get(line[2], line[3])}", kept)


def make_blank(folder: Path) -> None:
    """A language model of one layer, and a tokenizer whose tokens are bytes."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + at for at in range(256 - len(plain))]
    tokens = {chr(code): at for at, code in enumerate([*plain, *others])}
    tokens |= {f"unused {at}": at for at in range(len(tokens), BASE_TOKENS)}
    (folder / "vocab.json").write_text(json.dumps(tokens))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"}))
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=SMALLER["llm_input_size"],
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def make_graphs(folder: Path, version: int) -> None:
    """Graphs with the inputs and outputs of the two that a clip goes through."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def constant(name: str, value: Any, kind: str) -> Any:
        return numpy_helper.from_array(np.array(value, dtype=kind), name)

    def save(name: str, nodes: list[Any], ends: list[Any], constants: list[Any]) -> None:
        inputs, outputs = ends
        graph = helper.make_graph(nodes, name, inputs, outputs, constants)
        opset = [helper.make_opsetid("", 18)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / name)

    node, value = helper.make_node, helper.make_tensor_value_info
    weights = np.random.default_rng(1).normal(size=(80, 192)) / 10
    save(
        "campplus.onnx",
        [
            node("ReduceMean", ["x", "axis"], ["mean"], keepdims=0),
            node("MatMul", ["mean", "weights"], ["y"]),
        ],
        [
            [value("x", TensorProto.FLOAT, [1, "frames", 80])],
            [value("y", TensorProto.FLOAT, [1, 192])],
        ],
        [constant("axis", [1], "int64"), constant("weights", weights, "float32")],
    )
    save(
        f"speech_tokenizer_v{version}.onnx",
        [
            node("ReduceMean", ["x", "axis"], ["mean"], keepdims=0),
            node("Slice", ["mean", "start", "end", "axis", "step"], ["some"]),
            node("Abs", ["some"], ["positive"]),
            node("Mul", ["positive", "scale"], ["large"]),
            node("Cast", ["large"], ["whole"], to=TensorProto.INT32),
            node("Mod", ["whole", "most"], ["y"]),
            node("Identity", ["length"], ["z"]),
        ],
        [
            [
                value("x", TensorProto.FLOAT, [1, 128, "frames"]),
                value("length", TensorProto.INT32, [1]),
            ],
            [
                value("y", TensorProto.INT32, [1, "tokens"]),
                value("z", TensorProto.INT32, [1]),
            ],
        ],
        [
            constant("axis", [1], "int64"),
            constant("start", [0], "int64"),
            constant("end", [10**9], "int64"),
            constant("step", [4], "int64"),
            constant("scale", 1000, "float32"),
            constant("most", SPEECH_TOKENS, "int32"),
        ],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
