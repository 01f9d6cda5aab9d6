"""GPUs for machines without one: stub driver libraries that the real pynvml and ctypes load.

Processes find them by ``LD_LIBRARY_PATH``, so real workers and their children do too. The pytest
process itself never loads them. What they tell lies in a folder (``state.h``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, Self

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MIB = 2**20
SOURCES = {"libnvidia-ml.so.1": "nvml.c", "libcuda.so.1": "cuda.c"}
FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
CONTEXT_MIB = 64
"""What a context takes of each device, unless it is set to something else."""

Listing = Literal["normal", "host-pids", "no-bytes", "empty", "unsupported"]


def compile_libraries(folder: Path) -> Path:
    """Both libraries, in a folder; skips the test where there is no gcc, though never in CI."""
    gcc = shutil.which("gcc")
    if gcc is None:
        if os.environ.get("CI"):
            pytest.fail("The stub GPU needs gcc, and CI has to have it.")
        pytest.skip("no gcc to compile the stub GPU with")
    for library, source in SOURCES.items():
        output = ("-o", str(folder / library), f"-Wl,-soname,{library}")
        subprocess.run([gcc, *FLAGS, *output, str(HERE / source)], check=True)
    return folder


class StubDevice:
    """A GPU or MIG device; its figures are set while processes look."""

    def __init__(self, folder: Path, uuid: str, total_mib: int) -> None:
        self.folder = folder
        self.uuid = uuid
        folder.mkdir()
        (folder / "held").mkdir()
        self.set("name", "A stub GPU")
        self.set("total", total_mib * MIB)
        self.set("context", CONTEXT_MIB * MIB)
        self.set("uuid", uuid)
        self.set("pci", "00000000:3B:00.0")

    def set(self, name: str, value: str | int) -> None:
        """Set one of the values of ``state.h``, at once for all who look."""
        replace(self.folder / name, str(value))

    def list_processes(self, how: Listing) -> None:
        """How the driver lists processes, from now on."""
        self.set("listing", how)

    def others_use(self, mib: int) -> None:
        """Memory used by nobody who is listed."""
        self.set("extra", mib * MIB)

    def lose(self) -> None:
        """The GPU falls off the bus."""
        self.set("lost", "")

    def keep_what_is_held(self, yes: bool = True) -> None:
        """Give nothing back of what processes hold when they end; or give it back after all."""
        if yes:
            self.set("stuck", "")
        else:
            (self.folder / "stuck").unlink()

    def add_mig(self, place: int, uuid: str, total_mib: int = 100) -> StubDevice:
        """Cut a MIG device out of this GPU."""
        return StubDevice(self.folder / f"mig{place}", uuid, total_mib)


class StubDriver:
    """The driver and its GPUs, in one folder."""

    def __init__(self, libraries: Path, folder: Path) -> None:
        self._folder = folder
        self._starts = 0
        self.start()
        paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.env = {"STUB_GPU": str(folder), "LD_LIBRARY_PATH": os.pathsep.join(paths)}
        """What a process needs to see these GPUs."""

    def add_gpu(self, uuid: str = "GPU-a0", total_mib: int = 1000) -> StubDevice:
        """One GPU more, the next in the driver's order."""
        index = sum(one.name.isdecimal() for one in self._folder.iterdir())
        return StubDevice(self._folder / str(index), uuid, total_mib)

    def start(self) -> None:
        """Load the driver; what was opened with an earlier one stays useless."""
        self._starts += 1
        replace(self._folder / "driver", str(self._starts))

    def stop(self) -> None:
        """Unload the driver."""
        (self._folder / "driver").unlink()

    @property
    def inits(self) -> int:
        """How often NVML has been initialised, by all processes."""
        return (self._folder / "inits").stat().st_size

    def probe(self, **env: str) -> Probe:
        """A process with this driver."""
        return Probe({**self.env, **env})


class Probe:
    """A process that uses a GPU, and looks at it, as it is told; see ``worker.probe``."""

    def __init__(self, env: dict[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "PYTHONPATH": str(ROOT), **env},
        )
        self.pid = self._process.pid

    def look(self, engine_bytes: int | None = None) -> dict[str, Any]:
        """What ``worker.gpu`` makes of the devices in that process."""
        reading: dict[str, Any] = self._ask("look", engine_bytes)
        return reading

    def own(self, engine_bytes: int | None = None) -> dict[str, tuple[int | None, str | None]]:
        """Own MiB and their source, by the UUID of each device."""
        return {
            one["uuid"]: (one["own_bytes"] and one["own_bytes"] // MIB, one["measured_by"])
            for one in self.look(engine_bytes)["devices"]
        }

    def take(self, mib: float) -> str | None:
        """Take device memory, as `tone` leaks it; gives the name of the error."""
        error: str | None = self._ask("take", round(mib * MIB))
        return error

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()
        self._process.wait()

    def _ask(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def replace(path: Path, text: str) -> None:
    """Write a file that others may read in the same instant."""
    written = path.with_name(f".{path.name}")
    written.write_text(text)
    written.rename(path)
