"""How the engine cosyvoice starts: what it refuses, all of it at once, and what it leaves alone."""

from __future__ import annotations

import logging
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.cosyvoice_world import CHECKOUT, PLAN, World, forget
from voicemill.errors import SettingsError, VoiceNotFoundError
from voicemill.jobs import ItemInput
from voicemill.voices import HOW_TO_ENROL, Capabilities
from worker.engines import load_engine
from worker.engines.cosy import build
from worker.engines.cosyvoice import CosyVoiceEngine
from worker.environment import THREADS

ROOT = Path(__file__).parents[2]
WHERE = f"--checkout {CHECKOUT} --model-dir {{0.model_dir}}"


def refused(world: World, **options: Any) -> str:
    """What a start that fails says."""
    with pytest.raises(SettingsError) as caught:
        world.load(**options)
    return caught.value.message


def test_it_is_found_by_its_name_without_its_checkout() -> None:
    forget()
    assert isinstance(load_engine("cosyvoice"), CosyVoiceEngine)
    assert "cosyvoice" not in sys.modules


def test_all_missing_files_are_named_at_once(world: World) -> None:
    for name in ("llm.pt", "campplus.onnx", "CosyVoice-BlankEN/merges.txt"):
        (world.model_dir / name).unlink()
    (world.model_dir / "flow.pt").write_bytes(b"")
    message = refused(world)
    listed = "; ".join(
        f"{world.model_dir / name} (download the model again)"
        for name in ("llm.pt", "flow.pt", "campplus.onnx", "CosyVoice-BlankEN/merges.txt")
    )
    assert message.endswith(f"can't start without what is missing or not whole: {listed}.")


def test_a_checkout_without_its_submodule_is_told_how_to_get_it(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "cosyvoice").symlink_to(CHECKOUT / "cosyvoice")
    message = refused(world, checkout=str(tmp_path / "checkout"))
    assert message.count("; ") == 0
    assert "third_party/Matcha-TTS/matcha" in message
    assert "git submodule update --init --recursive" in message


def test_a_git_lfs_pointer_is_not_taken_for_weights(world: World) -> None:
    (world.model_dir / "flow.pt").write_text("version https://git-lfs.github.com/spec/v1\noid …\n")
    assert f"git -C {world.model_dir} lfs pull" in refused(world)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"checkout": None}, "checkout=None"),
        ({"checkout": "/nowhere/at/all"}, "checkout='/nowhere/at/all'"),
        ({"model_dir": None}, "model_dir=None"),
        ({"voices_dir": "/nowhere/at/all"}, "voices_dir='/nowhere/at/all'"),
        ({"load_jit": True}, "no option 'load_jit'"),
        ({"version": 3}, "no option 'version'"),
        ({"fp16": "yes"}, "fp16='yes'"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_an_option_that_can_not_be_used_is_named(
    world: World, options: dict[str, Any], named: str
) -> None:
    assert named in refused(world, **options)


def test_a_folder_that_is_not_there_is_not_downloaded(world: World) -> None:
    assert "model_dir='FunAudioLLM/CosyVoice'" in refused(world, model_dir="FunAudioLLM/CosyVoice")
    assert "modelscope" not in sys.modules


def test_a_model_of_cosyvoice_1_is_refused(world: World) -> None:
    (world.model_dir / "cosyvoice3.yaml").rename(world.model_dir / "cosyvoice.yaml")
    assert "cosyvoice3.yaml or cosyvoice2.yaml" in refused(world)


def test_half_precision_and_tensorrt_do_not_go_together_in_version_3(world: World) -> None:
    (world.model_dir / PLAN).write_text("plan")
    assert "fp16 and trt can't be used together" in refused(world, fp16=True, trt=True)


@pytest.mark.parametrize("flag", ["fp16", "trt", "vllm"])
def test_what_needs_cuda_is_refused_without_it(world: World, flag: str) -> None:
    (world.model_dir / PLAN).write_text("plan")
    (world.model_dir / "vllm").mkdir()
    (world.model_dir / "vllm" / "config.json").write_text("{}")
    assert f"{flag}=True can't be used" in refused(world, **{flag: True})


@pytest.mark.parametrize(("flag", "name"), [("trt", PLAN), ("vllm", "vllm")])
def test_what_is_not_built_is_named_with_the_command_that_builds_it(
    world: World, flag: str, name: str
) -> None:
    before = sorted(world.model_dir.iterdir())
    assert (
        f"{world.model_dir / name} (build it once: PYTHONPATH={ROOT} {sys.executable} "
        f"-m worker.engines.cosy.build {WHERE.format(world)} --{flag})"
    ) in refused(world, **{flag: True})
    assert sorted(world.model_dir.iterdir()) == before


def test_a_model_that_does_not_load_is_named(world: World) -> None:
    (world.model_dir / "llm.pt").write_text("broken")
    assert "ValueError: llm: Unexpected key(s)" in refused(world)


def test_a_package_that_is_missing_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", None)
    message = refused(world)
    assert "needs the package modelscope" in message
    assert str(CHECKOUT / "requirements.txt") in message


def test_another_cosyvoice_is_not_taken_for_the_checkout(world: World, tmp_path: Path) -> None:
    world.load()
    other = tmp_path / "other"
    (other / "third_party").mkdir(parents=True)
    for name in ("cosyvoice", "third_party/Matcha-TTS"):
        (other / name).symlink_to(CHECKOUT / name)
    assert f"{CHECKOUT}/cosyvoice/cli/cosyvoice.py" in refused(world, checkout=str(other))


@pytest.mark.parametrize("name", ["llm_job", "token2wav", "tts"])
def test_a_checkout_that_works_otherwise_is_refused(world: World, name: str) -> None:
    delattr(world.module("cosyvoice.cli.model").CosyVoice2Model, name)
    assert f"one that has model.{name}" in refused(world)


def test_logging_is_afterwards_as_it_was(world: World) -> None:
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    world.load()
    assert (root.level, root.handlers) == (logging.WARNING, [])


def test_the_normaliser_is_neither_downloaded_nor_gone(world: World) -> None:
    world.load()
    assert world.module("wetext").downloads == []
    assert world.model.frontend.text_frontend == ""
    assert world.module("wetext").Normalizer is not None


def test_voices_that_lie_in_the_model_s_folder_are_no_voices(world: World) -> None:
    (world.model_dir / "spk2info.pt").write_text("voices")
    world.load()
    assert world.model.frontend.spk2info == {}
    assert world.capabilities is not None
    assert [voice.name for voice in world.capabilities.voices] == ["ann"]


def test_nothing_is_written_into_the_model_s_folder(world: World) -> None:
    def listing() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_mtime_ns) for path in world.model_dir.rglob("*"))

    before = listing()
    world.load()
    world.speak("hello")
    assert listing() == before


def test_threads_on_the_cpu_are_the_child_s_share_unless_an_option_says_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(THREADS, "2")
    for options, threads in (({}, 2), ({"threads": 3}, 3)):
        world.load(**options)
        torch = world.module("cosyvoice.which_torch").torch
        assert torch.threads[-1] == threads


def test_without_a_voice_it_starts_and_says_how_to_enrol_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    empty = world.home / "empty"
    empty.mkdir()
    world.load(voices_dir=str(empty))
    able = world.capabilities
    assert able is not None
    assert HOW_TO_ENROL in caplog.text
    ((field, error),) = able.refusals(ItemInput(0, "a", "hello", "cosyvoice", ""))
    assert (field, type(error)) == ("voice", VoiceNotFoundError)
    assert error.message == f"cosyvoice has no voice ''; it has none of its own. {HOW_TO_ENROL}"
    assert Capabilities.from_record(able.to_record()) == able


def test_without_a_folder_of_voices_the_command_that_enrols_is_all_that_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.engine.load({"checkout": str(CHECKOUT), "model_dir": str(world.model_dir)})
    assert f"cosyvoice has no voice of its own. {HOW_TO_ENROL}\n" in caplog.text


def test_all_that_is_wrong_with_voices_is_named_at_once(world: World) -> None:
    world.make_voice("long", seconds=30.5)
    world.make_voice("short", seconds=0.5)
    world.make_voice("thin", rate=8_000)
    world.make_voice("martian", language="x-mars")
    (world.voices_dir / "noise.wav").write_bytes(b"no audio")
    (world.voices_dir / "alone.txt").write_text("hello")
    world.make_voice("odd").with_suffix(".json").write_text('{"txt": "hello"}')
    faults = refused(world).partition("voices_dir=")[2].split("; ")
    expected = {
        "alone": "has no clip beside it",
        "long": "lasts 30.5 s",
        "martian": "is of the language 'x-mars'",
        "noise": "can't be decoded",
        "odd": "has 'txt', which means nothing",
        "short": "lasts 0.5 s",
        "thin": "has a rate of 8000 Hz",
    }
    for name, fault in expected.items():
        assert [one for one in faults if f"/{name}." in one and fault in one]


def test_voices_say_their_language_or_have_that_of_the_option(world: World) -> None:
    world.make_voice("bob")
    world.load(language="de")
    assert world.capabilities is not None
    languages = {voice.name: voice.languages[0] for voice in world.capabilities.voices}
    assert languages == {"ann": "en", "bob": "de"}


def test_the_revision_changes_with_the_voices_the_weights_and_the_flags(world: World) -> None:
    revisions = []

    def note() -> None:
        world.load()
        assert world.capabilities is not None
        revisions.append(world.capabilities.model_revision)

    note()
    note()
    world.make_voice("ann", pitch=210, language="en")
    note()
    world.make_voice("ann", pitch=210, language="en", said="something else")
    note()
    (world.model_dir / "llm.pt").write_text("other weights")
    note()
    assert revisions[0] == revisions[1]
    assert len(set(revisions[1:])) == 4


class Device:
    """The stand-in's CUDA, there or not."""

    def __init__(self, world: World) -> None:
        self.torch = world.module("cosyvoice.which_torch").torch
        self.torch.cuda.available = True


@pytest.fixture
def cuda(world: World) -> Device:
    """A machine on which torch finds CUDA, and the graph that a plan is built from."""
    (world.model_dir / PLAN.replace("mygpu.plan", "onnx")).write_text("graph")
    return Device(world)


def command(world: World, *flags: str) -> int:
    """What the build's command exits with."""
    where = ["--checkout", str(CHECKOUT), "--model-dir", str(world.model_dir)]
    return build.main([*where, *flags])


def test_a_plan_is_built_once_and_then_read(
    world: World, cuda: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(world, "--trt") == 0
    assert PLAN in capsys.readouterr().err
    built = (world.model_dir / PLAN).stat()
    assert command(world, "--trt") == 0
    assert "nothing, all was there" in capsys.readouterr().err
    world.load(trt=True)
    assert world.model.model.flow.trt
    assert (world.model_dir / PLAN).stat() == built
    assert not list(world.model_dir.glob(".build-*"))


def test_a_build_that_fails_leaves_nothing(
    world: World, cuda: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    (world.model_dir / PLAN.replace("mygpu.plan", "onnx")).unlink()
    before = sorted(world.model_dir.iterdir())
    assert command(world, "--trt") == 1
    assert "FileNotFoundError" in capsys.readouterr().err
    assert sorted(world.model_dir.iterdir()) == before


def test_a_build_refuses_what_a_start_refuses(
    world: World, cuda: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(world, "--trt", "--fp16") == 1
    assert "fp16 and trt" in capsys.readouterr().err


def test_a_plan_of_another_gpu_is_named_with_the_command_that_builds_it(
    world: World, cuda: Device
) -> None:
    (world.model_dir / PLAN).write_text("a plan of another GPU")
    message = refused(world, trt=True)
    assert message.endswith(f"-m worker.engines.cosy.build {WHERE.format(world)} --trt --anew.")
    assert command(world, "--trt") == 0
    assert refused(world, trt=True) == message, "it was there"
    assert command(world, "--trt", "--anew") == 0
    world.load(trt=True)
    assert world.model.model.flow.trt


@pytest.mark.parametrize(("flag", "name"), [("trt", PLAN), ("vllm", "vllm/model.safetensors")])
def test_what_is_not_whole_is_built_over(world: World, cuda: Device, flag: str, name: str) -> None:
    """As upstream leaves it where it is ended while it writes."""
    (world.model_dir / name).parent.mkdir(exist_ok=True)
    (world.model_dir / name).touch()
    assert "build it once" in refused(world, **{flag: True})
    assert command(world, f"--{flag}") == 0
    world.load(**{flag: True})


def test_a_plan_in_half_precision_is_built_by_the_command_that_is_told(
    world: World, cuda: Device, tmp_path: Path
) -> None:
    two = World(tmp_path / "two")
    two.make_model(version=2)
    assert f"{WHERE.format(two)} --trt --fp16)" in refused(two, trt=True, fp16=True)


def test_vllm_is_told_of_the_model(world: World, cuda: Device) -> None:
    assert command(world, "--vllm") == 0
    world.load(vllm=True)
    assert world.model.model.llm.vllm.model == f"{world.model_dir}/vllm"


def test_vllm_is_refused_where_no_process_may_be_started(
    world: World, cuda: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.model_dir / "vllm").mkdir()
    (world.model_dir / "vllm" / "config.json").write_text("{}")
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert "vLLM starts processes of its own" in refused(world, vllm=True)


def test_voices_are_kept_on_the_host(world: World, cuda: Device) -> None:
    world.load()
    world.speak("hello")
    (timbre,) = world.engine._of_folder.values()
    assert {tensor.device for tensor in timbre.features.values()} == {"cpu"}
    assert world.model.frontend.spk2info == {}


def test_a_piece_over_the_profile_of_tensorrt_is_refused(world: World, cuda: Device) -> None:
    world.make_voice("bob", seconds=29)
    assert command(world, "--trt") == 0
    world.load(trt=True)
    (failed,) = world.speak("slowspeech " + "word " * 55, voice="bob")
    assert "the model takes 3000" in failed.message


def test_memory_is_given_back_between_batches_and_its_use_is_told(
    world: World, cuda: Device
) -> None:
    world.load()
    world.speak("hello")
    kept = world.engine.cached_memory()
    assert kept is not None
    assert (kept.reserved, kept.allocated, kept.is_emptied) == (3000, 2000, False)
    emptied = cuda.torch.cuda.emptied
    world.engine.after_batch()
    assert cuda.torch.cuda.emptied == emptied + 1
    kept = world.engine.cached_memory()
    assert kept is not None
    assert kept.is_emptied


def test_memory_is_given_back_after_a_segment_that_had_none(world: World, cuda: Device) -> None:
    world.load()
    emptied = cuda.torch.cuda.emptied
    world.speak("threadmemory", "hello")
    assert cuda.torch.cuda.emptied == emptied + 1
