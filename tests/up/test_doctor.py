"""``scripts/doctor.py``: what it says of a machine, and of what it was told to look at."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.diagnosis.checks import (
    Docker,
    Finding,
    Level,
    check_devices,
    check_engine,
    check_port,
    check_python,
    check_redis,
    check_room,
    check_toolkit,
)
from scripts.diagnosis.probes import read_settings
from scripts.doctor import line
from scripts.stack.parts import ROOT
from tests.gpu.stub import StubDriver
from tests.support import Valkey
from voicemill.settings import Settings

MIB = 2**20


def settings_of(**overrides: Any) -> Settings:
    return Settings.from_env({}, **overrides)


def device(free_mib: int, name: str = "A GPU") -> dict[str, Any]:
    total = 8000 * MIB
    return {"name": name, "total_bytes": total, "used_bytes": total - free_mib * MIB}


def doctor(home: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it, with no setting of this process's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VOICEMILL_")}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "doctor.py"), *flags],
        env={**kept, "VOICEMILL_HOME": str(home), "PATH": os.defpath, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_gpu_the_default_stack_lacks_nothing(tmp_path: Path) -> None:
    free = {"VOICEMILL_PORT": "0", "VOICEMILL_FLOWER_PORT": "0", "VOICEMILL_ENGINE": "tone"}

    done = doctor(tmp_path / "home", **free)

    assert (done.returncode, done.stderr) == (0, "")
    levels = [one.split()[0] for one in done.stdout.splitlines()]
    assert "failed" not in levels
    assert "\033" not in done.stdout
    assert "ok       engine: tone has all that it needs." in done.stdout
    assert not (tmp_path / "home").exists()


def test_every_line_that_failed_ends_in_a_command(tmp_path: Path, own_valkey: Valkey) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = doctor(
            tmp_path,
            "--json",
            VOICEMILL_PORT=str(port),
            VOICEMILL_FLOWER_PORT="0",
            VOICEMILL_WORKERS="none",
            VOICEMILL_LOG_LEVEL="loud",
            VOICEMILL_ENGINE="cosyvoice",
            VOICEMILL_ENGINE_PYTHON="/no/such/bin/python",
            VOICEMILL_FREE_SPACE_FLOOR_MB="999999999",
            VOICEMILL_REDIS_URL=own_valkey.url.replace(str(own_valkey.port), "1"),
        )

    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False)
    failed = [one for one in told["checks"] if one["level"] == "failed"]
    assert [(one["name"], one["command"]) for one in failed] == [
        ("settings", "unset VOICEMILL_WORKERS"),
        ("settings", "unset VOICEMILL_LOG_LEVEL"),
        (
            "engine",
            "python3.10 -m venv --clear /no/such && /no/such/bin/python -m pip install numpy",
        ),
        (
            "engine",
            "git clone --recursive https://github.com/FunAudioLLM/CosyVoice /srv/CosyVoice",
        ),
        (
            "engine",
            "huggingface-cli download FunAudioLLM/Fun-CosyVoice3-0.5B-2512 "
            "--local-dir /srv/Fun-CosyVoice3-0.5B",
        ),
        ("port of the API", "VOICEMILL_PORT=0 make up"),
        ("disk", f"df -h {tmp_path}"),
        ("Redis", 'redis-cli -u "$VOICEMILL_REDIS_URL" ping'),
    ]


def test_a_redis_that_forgets_is_told_how_to_keep(tmp_path: Path) -> None:
    valkey = Valkey(tmp_path, "--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
    valkey.start()
    try:
        strict = doctor(tmp_path, VOICEMILL_REDIS_URL=valkey.url)
        loose = doctor(tmp_path, VOICEMILL_REDIS_URL=valkey.url, VOICEMILL_REDIS_CHECK="off")
    finally:
        valkey.stop()

    for done, word in ((strict, "failed"), (loose, "warning")):
        lines = [one for one in done.stdout.splitlines() if " Redis: " in one]
        assert [one.split()[0] for one in lines] == [word] * 2
        assert lines[0].endswith("CONFIG SET maxmemory-policy noeviction")
        assert lines[1].endswith("CONFIG SET appendonly yes")
    assert strict.returncode == 1


def test_the_devices_are_those_that_the_driver_shows(
    tmp_path: Path, stub_driver: StubDriver
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=9000)

    done = doctor(tmp_path, VOICEMILL_ENGINE="tone", **stub_driver.env)

    assert "ok       GPU: A stub GPU, 9000 of 9000 MiB free." in done.stdout.splitlines()


def test_colours_are_for_terminals_and_words_for_all() -> None:
    finding = Finding("disk", Level.FAILED, "Full.", "df -h /")

    assert line(finding, coloured=False) == "failed   disk: Full. Run: df -h /"
    assert line(finding, coloured=True) == "\033[31mfailed \033[0m  disk: Full. Run: df -h /"


def test_all_settings_that_cannot_be_used_are_found_and_the_rest_is_read() -> None:
    environ = {"VOICEMILL_PORT": "x", "VOICEMILL_WORKERS": "0", "VOICEMILL_ENGINE": "tone"}

    settings, refused = read_settings(environ)

    assert [message.split("=")[0] for message in refused] == ["VOICEMILL_PORT", "VOICEMILL_WORKERS"]
    assert (settings.engine, settings.port) == ("tone", 8080)


def test_settings_that_cannot_be_used_together_are_found_too() -> None:
    environ = {"VOICEMILL_MIN_BATCH_LIMIT_SECONDS": "7200", "VOICEMILL_ENGINE": "tone"}

    settings, refused = read_settings(environ)

    assert len(refused) == 1
    assert settings.min_batch_limit_seconds == 120


def test_an_old_python_is_told_which_to_take() -> None:
    assert check_python((3, 11, 0)).level == Level.OK
    old = check_python((3, 10, 9))
    assert (old.level, old.command) == (Level.FAILED, "make venv PYTHON=python3.11")


def test_what_one_command_brings_is_one_line_and_a_setting_without_one_is_taken_back() -> None:
    missing = [
        {"what": "/m/llm.pt", "remedy": "", "command": "get it"},
        {"what": "/m/flow.pt", "remedy": "", "command": "get it"},
        {"what": "VOICEMILL_ENGINE_OPTIONS: no such option", "remedy": "", "command": ""},
    ]

    files, option = check_engine("cosyvoice", missing)

    assert files.text == "engine: cosyvoice lacks /m/llm.pt; /m/flow.pt. Run: get it"
    assert option.command == "unset VOICEMILL_ENGINE_OPTIONS"


@pytest.mark.parametrize(
    ("free_mib", "options", "levels"),
    [
        ([6000], {}, ["ok"]),
        ([4000], {}, ["failed"]),
        ([4000, 6000], {}, ["warning", "ok"]),
        ([6000], {"trt": True}, ["failed"]),
    ],
    ids=["fits", "full", "one of two", "with trt"],
)
def test_an_engine_must_fit_on_one_device(
    free_mib: list[int], options: Mapping[str, Any], levels: list[str]
) -> None:
    settings = settings_of(engine="cosyvoice", engine_options=options)

    found = [*check_devices([device(one) for one in free_mib], None, settings)]

    assert [one.level for one in found] == levels
    assert all(one.command == "nvidia-smi" for one in found if one.level != Level.OK)


def test_no_device_is_a_warning_since_the_cpu_speaks_too() -> None:
    (found,) = check_devices([], "no NVIDIA driver", settings_of(engine="cosyvoice"))
    assert (found.level, found.command) == (Level.WARNING, "nvidia-smi")
    (found,) = check_devices([], "no NVIDIA driver", settings_of(engine="hibari"))
    assert (found.level, found.command) == (Level.WARNING, "")


@pytest.mark.parametrize(
    ("docker", "told"),
    [
        (None, []),
        (Docker('{"nvidia":{},"runc":{}}'), [("ok", "")]),
        (Docker('{"runc":{}}'), [("warning", "sudo apt-get install nvidia-container-toolkit")]),
        (
            Docker('{"runc":{}}', has_toolkit=True),
            [
                (
                    "warning",
                    "sudo nvidia-ctk runtime configure --runtime=docker "
                    "&& sudo systemctl restart docker",
                )
            ],
        ),
        (Docker("", "no daemon"), [("warning", "docker info")]),
    ],
    ids=["no docker", "told", "no toolkit", "not told", "no daemon"],
)
def test_the_toolkit_is_spoken_of_where_there_is_docker(
    docker: Docker | None, told: list[tuple[str, str]]
) -> None:
    assert [(one.level, one.command) for one in check_toolkit(docker)] == told


def test_a_port_of_the_stack_that_runs_is_no_fault() -> None:
    assert check_port("Flower", 5555, "in use", is_ours=True).level == Level.OK
    found = check_port("Flower", 5555, "in use", is_ours=False)
    assert (found.level, found.command) == (Level.FAILED, "VOICEMILL_FLOWER_PORT=0 make up")


def test_room_is_measured_against_the_floor(tmp_path: Path) -> None:
    settings = settings_of(output_dir=tmp_path / "not" / "yet", free_space_floor_mb=500)
    assert check_room(500 * MIB, settings).level == Level.OK
    found = check_room(499 * MIB, settings)
    assert (found.level, found.command) == (Level.FAILED, f"df -h {tmp_path}")


def test_a_redis_that_keeps_is_fine() -> None:
    (found,) = check_redis({}, is_checked=True)
    assert found.level == Level.OK
