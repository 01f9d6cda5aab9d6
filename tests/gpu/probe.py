"""Takes GPU memory and looks at it, as lines of JSON on standard input say. See ``stub.Probe``."""

from __future__ import annotations

import json
import sys

from voicemill.errors import SynthesisError
from worker import gpu
from worker.engines.cuda import DeviceMemory
from worker.environment import visible_devices
from worker.nvml import Driver

driver = Driver(visible_devices())
memory: DeviceMemory | None = None


def take(size: int) -> str | None:
    """Take this many bytes; gives the code of the error."""
    global memory
    memory = memory or DeviceMemory()
    try:
        memory.take(size)
    except SynthesisError as error:
        return error.code
    return None


for line in sys.stdin:
    command, value = json.loads(line)
    answer = take(value) if command == "take" else gpu.read_devices(driver, value).to_record()
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
