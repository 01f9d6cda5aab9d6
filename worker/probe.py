"""Takes GPU memory and looks at it, as lines of JSON on standard input say; to try drivers with.

``["take", BYTES]`` is answered by the code of the error or null, ``["look", BYTES]`` by what
``worker.gpu`` reads where the engine says that it holds so much, or null. Both as lines of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from voicemill.errors import SynthesisError
from worker import gpu
from worker.engines.cuda import DeviceMemory
from worker.environment import visible_devices
from worker.nvml import Driver


class Probe:
    """A process that may hold device memory."""

    def __init__(self) -> None:
        self._driver = Driver(visible_devices())
        self._memory: DeviceMemory | None = None

    def take(self, size: int) -> str | None:
        """Take this many bytes for good; gives the code of the error."""
        self._memory = self._memory or DeviceMemory()
        try:
            self._memory.take(size)
        except SynthesisError as error:
            return error.code
        return None

    def look(self, engine_bytes: int | None) -> dict[str, Any]:
        """The devices now."""
        return gpu.read_devices(self._driver, engine_bytes).to_record()


def main() -> None:
    """Answer line by line."""
    probe = Probe()
    commands: dict[str, Callable[[Any], Any]] = {"take": probe.take, "look": probe.look}
    for line in sys.stdin:
        command, value = json.loads(line)
        sys.stdout.write(json.dumps(commands[command](value)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
