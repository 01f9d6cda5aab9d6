"""The supervisor over small real processes: one that dies, one that does not listen, and so on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.stack.errors import CannotStartError, StackError, StopRequested
from scripts.stack.home import Home
from scripts.stack.parts import ROOT
from scripts.stack.signals import Signals
from scripts.stack.supervisor import RestartPolicy, Supervisor
from tests.support import wait_until
from tests.up.stand_ins import MARKER, program

WAITS = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
DIES = "import sys; print('no engine here', flush=True); sys.exit(7)"
WITH_A_DEAF_CHILD = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}]); {WAITS}"
)
QUICK = RestartPolicy(first_seconds=0.05, most_seconds=0.2, healthy_seconds=60)


def left(home: Home) -> list[int]:
    """Pids of what carries the mark of a home; what waits to be reaped has no environment."""
    found = []
    mark = f"{MARKER}={home.path}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as signals:
        yield signals


@pytest.fixture
def supervisor(home: Home, signals: Signals) -> Iterator[Supervisor]:
    with home.locked() as lock:
        home.prepare()
        with Supervisor(home, signals, lock, QUICK) as supervisor:
            yield supervisor
    assert left(home) == []


def has_started(home: Home, name: str) -> bool:
    return "up" in home.log(name).read_text()


def test_parts_are_listed_while_they_run_and_stop_in_reverse(
    home: Home, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "up")
    for name in ("first", "second"):
        supervisor.start(program(name, WAITS, home.path))
    assert supervisor.wait_for(lambda: has_started(home, "second"), 10)
    pids = json.loads(home.pids.read_text())
    assert sorted(pids.values()) == sorted(left(home))
    supervisor.stop()
    assert [line for line in caplog.messages if "stopped" in line] == [
        "second stopped (killed by SIGTERM)",
        "first stopped (killed by SIGTERM)",
    ]
    assert left(home) == []
    assert not home.pids.exists()


def test_a_part_that_dies_is_started_again_with_longer_and_longer_pauses(
    home: Home, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.ready = True
    supervisor.start(program("dying", DIES, home.path))
    supervisor.start(program("steady", WAITS, home.path))
    steady = supervisor.pid("steady")
    assert supervisor.wait_for(lambda: home.log("dying").read_text().count("\n") >= 5, 20)
    assert caplog.messages[:4] == [
        f"dying died (exit status 7); again in {pause:g} s" for pause in (0.05, 0.1, 0.2, 0.2)
    ]
    assert supervisor.pid("steady") == steady


def test_a_killed_part_comes_back_as_another_process(home: Home, supervisor: Supervisor) -> None:
    supervisor.start(program("part", WAITS, home.path))
    before = supervisor.pid("part")
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert supervisor.wait_for(lambda: supervisor.pid("part") not in (None, before), 10)
    assert json.loads(home.pids.read_text()) == {"part": supervisor.pid("part")}


def test_what_a_dead_part_had_started_is_gone_before_it_comes_back(
    home: Home, supervisor: Supervisor
) -> None:
    supervisor.start(program("parent", WITH_A_DEAF_CHILD, home.path))
    assert supervisor.wait_for(lambda: home.log("parent").read_text().count("up") == 2, 20)
    before = set(left(home))
    assert len(before) == 2
    os.kill(supervisor.pid("parent") or 0, signal.SIGKILL)
    assert supervisor.wait_for(lambda: home.log("parent").read_text().count("up") == 4, 20)
    assert not before & set(left(home))


def test_a_part_that_dies_five_times_before_the_stack_is_ready_ends_it_with_its_log(
    home: Home, supervisor: Supervisor
) -> None:
    supervisor.start(program("steady", WAITS, home.path))
    supervisor.start(program("dying", DIES, home.path))
    with pytest.raises(
        StackError, match=r"dying does not stay up \(exit status 7, 5 in a row\)"
    ) as caught:
        supervisor.wait_for(lambda: False, 20)
    assert str(caught.value).count("no engine here") == 5


def test_a_status_that_no_other_start_would_change_ends_it_at_once(
    home: Home, supervisor: Supervisor
) -> None:
    supervisor.start(replace(program("hopeless", DIES, home.path), hopeless_status=7))
    with pytest.raises(StackError, match=r"hopeless does not stay up .*, 1 in a row") as caught:
        supervisor.wait_for(lambda: False, 20)
    assert str(caught.value).splitlines()[1:] == ["no engine here"]


def test_a_part_that_refuses_its_settings_ends_it_with_the_line_that_says_why(
    home: Home, supervisor: Supervisor
) -> None:
    home.log("proud").write_text("[01:00: CRITICAL/Main] an older reason\n")
    said = "[02:00: INFO/Main] begins\n[02:00: CRITICAL/Child-1] no option 'nope'\n"
    source = f"import sys; print({said!r} + '[02:01: CRITICAL/Main] stops'); sys.exit(9)"
    supervisor.start(replace(program("proud", source, home.path), misconfigured_status=9))
    with pytest.raises(CannotStartError) as caught:
        supervisor.wait_for(lambda: False, 20)
    assert str(caught.value) == "no option 'nope'"


def test_a_part_that_refuses_its_settings_without_a_word_is_named_with_its_log(
    home: Home, supervisor: Supervisor
) -> None:
    silent = program("silent", "import sys; sys.exit(9)", home.path)
    supervisor.start(replace(silent, misconfigured_status=9))
    with pytest.raises(CannotStartError) as caught:
        supervisor.wait_for(lambda: False, 20)
    assert str(caught.value) == f"silent refuses its settings; see {home.log('silent')}."


def test_a_program_that_is_not_there_counts_as_a_death(home: Home, supervisor: Supervisor) -> None:
    part = program("absent", "", home.path)
    supervisor.start(replace(part, argv=(str(home.path / "nothing"),)))
    with pytest.raises(StackError, match="could not be started"):
        supervisor.wait_for(lambda: False, 20)


def test_a_deaf_part_is_killed_with_its_children(
    home: Home, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "up")
    supervisor.start(program("deaf", DEAF, home.path, stop_seconds=0.2))
    supervisor.start(program("parent", WITH_A_DEAF_CHILD, home.path))
    assert supervisor.wait_for(lambda: has_started(home, "deaf"), 10)
    assert supervisor.wait_for(lambda: home.log("parent").read_text().count("up") == 2, 20)
    began = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - began < 5
    assert [line for line in caplog.messages if "stop" in line] == [
        "parent stopped (killed by SIGTERM)",
        "deaf did not stop in time; killed",
        "deaf stopped (killed by SIGKILL)",
    ]
    assert left(home) == []


def test_a_condition_that_does_not_come_true_is_given_up(supervisor: Supervisor) -> None:
    assert not supervisor.wait_for(lambda: False, 0.1)


def test_a_stop_signal_ends_the_watch(signals: Signals, supervisor: Supervisor) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(StopRequested):
        supervisor.watch()


# --- the supervisor as a process that is itself signalled and killed ---------


@pytest.fixture
def driver(home: Home) -> Iterator[subprocess.Popen[str]]:
    """A supervisor with a part that listens, and one that does not and has a child."""
    parts = {"listens": WAITS, "deaf": WITH_A_DEAF_CHILD.replace(WAITS, DEAF)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.up.stand_ins", str(home.path), json.dumps(parts)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    wait_until(lambda: len(left(home)) == 3, what="three processes")
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_supervisor_leaves_no_part(home: Home, driver: subprocess.Popen[str]) -> None:
    driver.kill()
    driver.wait()
    # The home is not free before they are gone; whoever wants it waits for that.
    with home.locked():
        assert left(home) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_supervisor_ends_with_zero_and_leaves_no_process(
    home: Home, driver: subprocess.Popen[str], number: signal.Signals
) -> None:
    driver.send_signal(number)
    assert driver.wait(20) == 0
    assert left(home) == []
    with home.locked():
        pass
