"""The tone engine: what it sounds, and how it misbehaves when told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver
from tests.support import wait_until
from voicemill.errors import EnginePoisonedError, SettingsError, SynthesisError
from worker.engines.base import WARM_UP_CALLS, Samples, Segment, SynthesisOptions
from worker.engines.tone import SAMPLE_RATE_HZ, ToneEngine, pitch, seconds

TEXT = "A text of some length."
ROOT = Path(__file__).parents[2]
SPEAKS = """
import json, sys
from worker.engines.base import Segment, SynthesisOptions
from worker.engines.tone import ToneEngine
engine = ToneEngine()
engine.load(json.loads(sys.argv[1]))
for _ in range(3):
    engine.synthesize([Segment(sys.argv[2])], "low", SynthesisOptions())
    print("spoke", flush=True)
print(open("/proc/self/statm").read().split()[1])
"""


def engine(**options: Any) -> ToneEngine:
    """A loaded engine."""
    one = ToneEngine()
    one.load(options)
    return one


def speak(
    one: ToneEngine,
    text: str = TEXT,
    voice: str = "low",
    seed: int | None = None,
    **options: Any,
) -> Samples:
    """The samples of one segment."""
    (spoken,) = one.synthesize([Segment(text, seed)], voice, SynthesisOptions(**options))
    assert not isinstance(spoken, SynthesisError)
    return spoken


def process(options: dict[str, Any], text: str = TEXT, **env: str) -> subprocess.Popen[str]:
    """A process that loads the engine and speaks three times."""
    command = [sys.executable, "-c", SPEAKS, json.dumps(options), text]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **env},
    )


def test_length_follows_the_text_and_the_speed() -> None:
    one = engine()
    assert len(speak(one)) == round(seconds(TEXT) * SAMPLE_RATE_HZ)
    assert len(speak(one, TEXT * 3)) == pytest.approx(3 * len(speak(one)), abs=2)
    assert len(speak(one, speed=2.0)) == pytest.approx(len(speak(one)) / 2, abs=2)


@pytest.mark.parametrize("voice", ["low", "high"])
def test_the_loudest_frequency_is_the_pitch_of_the_text(voice: str) -> None:
    samples = speak(engine(), TEXT * 4, voice)
    spectrum = np.abs(np.fft.rfft(samples))
    found = np.argmax(spectrum) * SAMPLE_RATE_HZ / len(samples)
    assert found == pytest.approx(pitch(TEXT * 4, voice), abs=1.0)


def test_the_same_text_voice_speed_and_seed_give_the_same_bytes() -> None:
    assert speak(engine(), seed=3).tobytes() == speak(engine(), seed=3).tobytes()
    assert pitch(TEXT, "low") < pitch(TEXT, "high")
    assert len({pitch(TEXT, "low", seed) for seed in range(10)}) > 5
    assert len({pitch(f"{TEXT} {number}", "low") for number in range(10)}) > 5


def test_a_segment_takes_the_time_that_it_is_told() -> None:
    one = engine(seconds_per_segment=0.05, seconds_per_character=0.005)
    began = time.perf_counter()
    speak(one, "0123456789")
    assert 0.1 <= time.perf_counter() - began < 0.3
    began = time.perf_counter()
    speak(one, "{tone:seconds=0.2}0123456789")
    assert 0.3 <= time.perf_counter() - began < 0.6


def test_each_segment_is_slower_than_the_one_before() -> None:
    one = engine(seconds_per_segment=0.02, slow_factor=2)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        speak(one)
        times.append(time.perf_counter() - began)
    assert times[3] >= 0.16
    assert times == sorted(times)


def test_loading_fails_while_there_is_an_obstacle(tmp_path: Path) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    with pytest.raises(SynthesisError, match="told to fail"):
        engine(fail_load_while=str(obstacle))
    obstacle.unlink()
    assert len(speak(engine(fail_load_while=str(obstacle)))) > 0


def test_the_warm_up_fails_while_there_is_an_obstacle_and_later_calls_do_not(
    tmp_path: Path,
) -> None:
    obstacle = tmp_path / "obstacle"
    one = engine(fail_warm_up_while=str(obstacle))
    obstacle.touch()
    for _ in range(WARM_UP_CALLS):
        with pytest.raises(SynthesisError, match="told to fail"):
            speak(one)
    assert len(speak(one)) > 0


def test_loading_hangs_in_native_code_while_there_is_an_obstacle(tmp_path: Path) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    assert_hangs(process({"hang_load_while": str(obstacle)}))
    obstacle.unlink()
    output, _ = process({"hang_load_while": str(obstacle)}).communicate(timeout=30)
    assert output.count("spoke") == 3


def test_loading_takes_the_time_that_it_is_told() -> None:
    began = time.perf_counter()
    engine(load_seconds=0.1)
    assert time.perf_counter() - began >= 0.1


def test_a_leak_is_resident_memory() -> None:
    def resident_pages(size: int) -> int:
        output, _ = process({"leak_host_mb": size}).communicate(timeout=30)
        return int(output.split()[-1])

    grown = (resident_pages(20) - resident_pages(0)) * os.sysconf("SC_PAGE_SIZE")
    assert 55 * 2**20 < grown < 75 * 2**20


def test_a_leak_on_the_device_lasts_until_the_process_ends(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu()
    leaking = process({"leak_device_mb": 1.5, "hang": 1}, **stub_driver.env)
    with stub_driver.probe() as other:

        def used() -> float:
            return float(other.look()["devices"][0]["used_bytes"] / MIB)

        wait_until(lambda: used() >= CONTEXT_MIB + WARM_UP_CALLS * 1.5, 20, "the leak")
        assert used() == CONTEXT_MIB + WARM_UP_CALLS * 1.5
        leaking.kill()
        leaking.communicate(timeout=30)
        assert used() == 0


def test_a_cache_is_held_and_of_no_use_and_what_leaks_is_in_use(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu()
    script = """
from worker.engines.base import Segment, SynthesisOptions
from worker.engines.tone import ToneEngine
for options in ({}, {"leak_device_mb": 1}, {"leak_device_mb": 1, "cache_device_mb": 2}):
    engine = ToneEngine()
    engine.load(options)
    for _ in range(3):
        engine.synthesize([Segment("One.")], "low", SynthesisOptions())
    cached = engine.cached_memory()
    print(cached and (cached.reserved >> 20, cached.allocated >> 20, cached.wasted >> 20))
"""
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **stub_driver.env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == ["None", "None", "(9, 3, 6)"]


def test_a_device_that_is_full_is_no_memory_and_one_that_is_lost_is_poison(
    stub_driver: StubDriver,
) -> None:
    device = stub_driver.add_gpu(total_mib=100)
    with stub_driver.probe() as other:
        assert other.take(100 - CONTEXT_MIB) is None
        assert other.take(0.1) == "out_of_memory"
        device.lose()
        assert other.take(0.1) == "engine_poisoned"


@pytest.mark.parametrize("option", ["leak_device_mb", "cache_device_mb"])
def test_device_memory_without_a_device_is_refused(option: str, stub_driver: StubDriver) -> None:
    output, _ = process({option: 2}, **stub_driver.env).communicate(timeout=30)
    assert output.splitlines()[-1].endswith(
        f"VOICEMILL_ENGINE_OPTIONS: {option}=2.0 can't be used; give 0, or a machine with an "
        "NVIDIA driver and a device (cuInit gave CUDA_ERROR_NO_DEVICE)."
    )


@pytest.mark.skipif(bool(find_library("cuda")), reason="this machine has a CUDA driver")
def test_a_leak_on_the_device_without_a_driver_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"leak_device_mb=2\.0 .*libcuda\.so\.1"):
        engine(leak_device_mb=2)


def test_failing_calls_are_counted_after_the_warm_up() -> None:
    one = engine(fail=2)
    for _ in range(WARM_UP_CALLS):
        speak(one)
    for _ in range(2):
        with pytest.raises(SynthesisError, match="told to fail"):
            speak(one)
    assert speak(one).any()


def test_always_has_no_end() -> None:
    one = engine(fail="always")
    for _ in range(WARM_UP_CALLS):
        speak(one)
    for _ in range(5):
        with pytest.raises(SynthesisError):
            speak(one)


def test_a_told_segment_fails_alone() -> None:
    batch = [Segment(TEXT), Segment("{tone:fail}"), Segment(TEXT)]
    first, second, third = engine().synthesize(batch, "low", SynthesisOptions())
    assert isinstance(second, SynthesisError)
    assert isinstance(first, np.ndarray)
    assert np.array_equal(first, np.asarray(third))


def test_a_poisoned_engine_ends_the_whole_call() -> None:
    batch = [Segment(TEXT), Segment("{tone:poison}")]
    with pytest.raises(EnginePoisonedError):
        engine().synthesize(batch, "low", SynthesisOptions())


def test_a_directive_has_no_length_and_no_sound() -> None:
    assert np.array_equal(speak(engine(), f"{TEXT} {{tone:seconds=0}}"), speak(engine()))


def test_bad_output_is_what_was_told_by_option_or_text() -> None:
    for option, directive in (({"output": "silence"}, ""), ({}, "{tone:silence}")):
        assert not speak(engine(**option), TEXT + directive).any()
    for option, directive in (({"output": "nan"}, ""), ({}, "{tone:nan}")):
        assert np.isnan(speak(engine(**option), TEXT + directive)).all()
    for option, directive in (({"output": "empty"}, ""), ({}, "{tone:empty}")):
        assert speak(engine(**option), TEXT + directive).shape == (0,)
    for option, directive in (({"output": "loud"}, ""), ({}, "{tone:loud}")):
        assert speak(engine(**option), TEXT + directive).max() > 2.9


def test_a_crash_is_a_kill_after_the_warm_up() -> None:
    crashing = process({"crash": 1})
    output, _ = crashing.communicate(timeout=30)
    assert crashing.returncode == -signal.SIGKILL
    assert output == "spoke\n" * WARM_UP_CALLS


def test_a_crash_once_crashes_once(tmp_path: Path) -> None:
    text = f"{{tone:crash-once={tmp_path / 'crashed here.flag'}}} Hello."
    first = process({}, text)
    first.communicate(timeout=30)
    second = process({}, text)
    output, _ = second.communicate(timeout=30)
    assert (first.returncode, second.returncode) == (-signal.SIGKILL, 0)
    assert output.count("spoke") == 3


@pytest.mark.parametrize("trouble", ["hang", "seize"])
def test_a_hang_ends_by_sigkill_alone(trouble: str) -> None:
    assert_hangs(process({}, f"{{tone:{trouble}}}"))


def assert_hangs(hung: subprocess.Popen[str]) -> None:
    """It waits for a lock, and no signal but SIGKILL ends it."""
    stat = Path(f"/proc/{hung.pid}/wchan")
    wait_until(lambda: "futex" in stat.read_text(), 20, "a wait for a lock")
    hung.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        hung.wait(0.3)
    hung.kill()
    assert hung.wait(10) == -signal.SIGKILL
    assert hung.stdout is not None
    assert hung.stdout.read() == ""
    hung.stdout.close()


@pytest.mark.parametrize(
    "options",
    [
        {"volume": 1},
        {"leak_device_mb": "much"},
        {"load_seconds": -1},
        {"slow_factor": "2"},
        {"fail": 1.5},
        {"crash": True},
        {"hang": "often"},
        {"hang_load_while": ""},
        {"fail_warm_up_while": 3},
        {"output": "music"},
        {"leak_host_mb": float("nan")},
    ],
)
def test_an_option_that_can_not_be_used_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"ENGINE_OPTIONS.*{next(iter(options))}"):
        engine(**options)
