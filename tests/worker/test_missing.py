"""What an engine lacks, told before it is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import ROOT
from tests.worker.cosyvoice_world import CHECKOUT, World
from voicemill.errors import SettingsError
from voicemill.settings import Settings
from worker import checkup
from worker.engines.cosy import needs, venv
from worker.engines.cosy.options import UPSTREAM, download
from worker.engines.cosy.packages import Requirements
from worker.missing import Missing
from worker.remote.interpreter import unfit

PYTHON = Path(sys.executable)
LIST = """\
--extra-index-url https://example.org/simple # an index
# a comment
HyperPyYAML==1.2.3
numpy==1.26.4
deepspeed==0.15.1; sys_platform == 'linux'
onnxruntime-gpu==1.18.0; sys_platform == 'linux'
onnxruntime==1.18.0; sys_platform == 'darwin' or sys_platform == 'win32'
openai-whisper==20231117
tensorrt-cu12==10.13.3.9; sys_platform == 'linux'
torch==2.3.1
transformers==4.51.3
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.make_model()
    return world


@pytest.fixture
def requirements(tmp_path: Path) -> Requirements:
    (tmp_path / "requirements.txt").write_text(LIST)
    return Requirements.read(tmp_path)


def lacking(options: dict[str, Any], python: Path | None = None) -> list[tuple[str, str]]:
    return [(one.what, one.command) for one in needs.missing(options, python)]


def test_a_whole_checkout_and_model_lack_nothing(world: World) -> None:
    assert lacking(world.options()) == []


def test_nothing_at_all_is_a_checkout_and_a_model_to_get() -> None:
    assert lacking({}) == [
        (
            "a checkout of CosyVoice (option checkout)",
            f"git clone --recursive {UPSTREAM} /srv/CosyVoice",
        ),
        (
            "a model of CosyVoice (option model_dir)",
            download(Path("/srv/Fun-CosyVoice3-0.5B"), 3, PYTHON),
        ),
    ]


def test_a_model_is_brought_by_the_tool_of_the_engine_s_own_python(tmp_path: Path) -> None:
    tool = tmp_path / "huggingface-cli"
    tool.touch()
    where = "download FunAudioLLM/Fun-CosyVoice3-0.5B-2512 --local-dir '/srv/a model'"
    assert download(Path("/srv/a model"), 3, tmp_path / "python") == f"{tool} {where}"
    tool.unlink()
    assert download(Path("/srv/a model"), 3, tmp_path / "python") == f"huggingface-cli {where}"


def test_a_home_is_written_as_shells_write_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make` passes it on, where the shell before it has not put the folder in its place."""
    monkeypatch.setenv("HOME", str(world.home))
    assert lacking(world.options(model_dir="~/model")) == []
    assert world.load(model_dir="~/model")


def test_files_of_checkout_model_and_voices_are_told_together(world: World) -> None:
    (world.model_dir / "flow.pt").unlink()
    (world.home / "bare").mkdir()
    voices = world.home / "no voices"
    options = world.options(checkout=str(world.home / "bare"), voices_dir=str(voices))

    told = [what for what, _ in lacking(options)]

    assert f"{world.home / 'bare'}/cosyvoice/cli/model.py" in told
    assert f"{world.model_dir / 'flow.pt'}" in told
    assert f"{voices}, a folder of voices" in told


def test_a_folder_without_a_model_lacks_all_of_it(world: World) -> None:
    (world.model_dir / "cosyvoice3.yaml").unlink()

    ((what, command),) = lacking(world.options())

    assert what == str(world.model_dir / "cosyvoice3.yaml")
    assert command == download(world.model_dir, 3, PYTHON)


def test_options_that_the_engine_refuses_are_told_where_nothing_is_missing(world: World) -> None:
    ((what, command),) = lacking(world.options(fp16="yes"))

    assert what.startswith("VOICEMILL_ENGINE_OPTIONS: fp16='yes' can't be used")
    assert command == ""


def test_an_artefact_that_was_not_built_comes_with_the_command_that_builds_it(
    world: World,
) -> None:
    ((what, command),) = [one for one in lacking(world.options(trt=True)) if "plan" in one[0]]

    assert what == str(world.model_dir / "flow.decoder.estimator.fp32.mygpu.plan")
    assert command.endswith(f"--model-dir {world.model_dir} --trt")


def test_packages_that_the_python_of_the_engine_does_not_have_are_named(
    world: World, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    checkout.symlink_to(CHECKOUT, target_is_directory=True)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)

    ((what, command),) = lacking(world.options(checkout=str(checkout)), bare / "bin/python")

    assert what == f"packages for {bare}/bin/python: numpy, soundfile"
    assert command == f"make venv-cosyvoice COSYVOICE_DIR={checkout}"


@pytest.mark.parametrize(
    ("error", "what", "command"),
    [
        (
            unfit(Path("/x/bin/python"), "is not there; make it with: python3.10 -m venv /x"),
            "VOICEMILL_ENGINE_PYTHON='/x/bin/python' is not there",
            "python3.10 -m venv /x",
        ),
        (
            SettingsError("The engine piper needs piper. Install it with: pip install '1.2;3'"),
            "The engine piper needs piper",
            "pip install '1.2;3'",
        ),
        (SettingsError("It can't be used; give another."), "It can't be used; give another", ""),
    ],
    ids=["python", "package", "no command"],
)
def test_the_command_of_an_error_is_what_it_ends_in(
    error: SettingsError, what: str, command: str
) -> None:
    assert Missing.told_by(error) == Missing(what, "", command)


def test_an_engine_that_nothing_offers_is_missing() -> None:
    (told,) = checkup.missing(Settings.from_env({"VOICEMILL_ENGINE": "none"}))
    assert told.what.startswith("There is no engine 'none'; set VOICEMILL_ENGINE to one of: ")


def test_an_engine_of_another_python_need_not_be_known_to_ours() -> None:
    environ = {"VOICEMILL_ENGINE": "theirs", "VOICEMILL_ENGINE_PYTHON": sys.executable}
    assert checkup.missing(Settings.from_env(environ)) == []


def test_the_checkup_is_one_object_on_standard_output() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "VOICEMILL_ENGINE": "cosyvoice"}
    env["VOICEMILL_ENGINE_OPTIONS"] = "{}"
    done = subprocess.run(
        [sys.executable, "-m", "worker.checkup"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told.keys() == {"devices", "reason", "missing"}
    assert [one.keys() for one in told["missing"]] == [{"what", "remedy", "command"}] * 2


def test_what_only_trains_and_what_was_not_asked_for_is_left_out(
    requirements: Requirements,
) -> None:
    def names(*parts: str) -> list[str]:
        return [one.name for one in requirements.chosen(parts)]

    always = ["hyperpyyaml", "numpy", "onnxruntime-gpu", "openai-whisper", "transformers"]
    assert names() == always
    assert names("torch") == [*always[:-1], "torch", "transformers"]
    assert names("torch", "trt") == [*always[:-1], "tensorrt-cu12", "torch", "transformers"]
    assert requirements.modules() == [
        *("hyperpyyaml", "numpy", "onnxruntime", "whisper", "torch", "transformers")
    ]


def test_the_steps_of_an_installation_keep_to_the_list_and_its_indexes(
    requirements: Requirements,
) -> None:
    setuptools, whisper, rest, vllm = venv.steps(requirements, ["torch", "vllm"])

    assert setuptools == ["setuptools<81", "wheel"]
    assert whisper == ["--no-deps", "--no-build-isolation", "openai-whisper==20231117"]
    assert rest[:3] == ["--extra-index-url", "https://example.org/simple", "numpy"]
    assert "torch==2.3.1" in rest
    assert not {one for one in rest if one.startswith(("deepspeed", "tensorrt", "onnxruntime=="))}
    assert vllm == ["vllm==0.9.0", "numpy==1.26.4", "transformers==4.51.3"]


def test_without_a_checkout_or_a_python_nothing_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = ["--venv", str(tmp_path / "venv"), "--python", "/no/such/python"]

    assert venv.main(["--checkout", str(tmp_path), *made]) == 1
    assert "set COSYVOICE_DIR to a checkout of CosyVoice" in capfd.readouterr().err
    assert venv.main(["--checkout", str(CHECKOUT), *made]) == 1
    assert "uv python install 3.10" in capfd.readouterr().err
    assert not (tmp_path / "venv").exists()
    with pytest.raises(SystemExit):
        venv.main(["--checkout", str(CHECKOUT), *made, "--parts", "torch tpu"])
    assert "there is no part 'tpu'" in capfd.readouterr().err
