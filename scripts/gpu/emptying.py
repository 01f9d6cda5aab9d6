"""What giving back torch's cached memory costs, in a process that has torch."""

from __future__ import annotations

import json
import subprocess
import sys

from scripts.gpu.machine import MIB, CheckError, Machine, Probe
from scripts.gpu.report import Finding
from scripts.stack.parts import ROOT

TORCH_SECONDS = 120.0
BLOCKS = 16
EMPTY_CACHE = """
import json, statistics, sys, time
try:
    import torch
except ImportError:
    sys.exit(print(json.dumps({"skipped": "torch is not installed"})))
if not torch.cuda.is_available():
    sys.exit(print(json.dumps({"skipped": "torch finds no CUDA device"})))
size, count = map(int, sys.argv[1:])

def fill():
    [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(count)]

def milliseconds(act):
    torch.cuda.synchronize()
    began = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began)

fill()
rounds = [[milliseconds(act) for act in (fill, torch.cuda.empty_cache, fill)] for _ in range(20)]
filled, emptied, refilled = zip(*rounds)
median = statistics.median
print(json.dumps({
    "median_ms": median(emptied),
    "worst_ms": max(emptied),
    "refill_ms": median(refilled) - median(filled),
}))
"""


def time_empty_cache(machine: Machine, _observer: Probe) -> Finding:
    """What ``VOICEMILL_EMPTY_CACHE_EVERY`` costs."""
    ended = subprocess.run(
        [sys.executable, "-c", EMPTY_CACHE, str(machine.small), str(BLOCKS)],
        env=machine.env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TORCH_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise CheckError("torch failed; what it said is above")
    figures = json.loads(ended.stdout)
    if "skipped" in figures:
        return Finding(True, f"left out: {figures['skipped']}", figures)
    mib = BLOCKS * machine.small // MIB
    text = "{median_ms:.2f} ms ({worst_ms:.2f} at worst) for {mib} MiB, {refill_ms:.2f} to refill"
    return Finding(True, text.format(mib=mib, **figures), {"mib": mib, **figures})
