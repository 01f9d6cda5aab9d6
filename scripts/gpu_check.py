"""Try on this machine's GPU what the tests can try on a stub only; takes a few minutes.

Needs the NVIDIA driver, this checkout and its environment, and torch for one check that is left
out without it. Starts a stack of its own and stops it. Takes up to nine tenths of what is free of
the first device that CUDA_VISIBLE_DEVICES shows. With --engine it tries that engine instead, by the
conformance suite and in a stack whose children are replaced; this needs the test packages. With
--bench it measures instead: padded batches of a VITS model of random weights, for which 8 GB of
device memory are enough, that model through the stack, and with --engine that engine, too. Prints a
line for each check and, as the last line, a JSON object with all figures.

exit codes:
  0  all is well      1  a check failed      2  wrong usage      3  no driver or no device
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from scripts.gpu.bench import MODEL, bench_batches, bench_engine
from scripts.gpu.emptying import time_empty_cache
from scripts.gpu.engine import Subject, conform, work
from scripts.gpu.machine import MIB, CheckError, Machine, NoDeviceError, Probe, survey
from scripts.gpu.recycling import recycle
from scripts.gpu.report import Finding, as_json, as_page, line, write
from voicemill.errors import VoicemillError

EXIT_FAILED, EXIT_NO_DEVICE = 1, 3
HANDOVERS = 20
LIMIT_SECONDS, LONG_LIMIT_SECONDS = 470, 3600
BREAKS = 2
NOT_YET = Finding(False, "the time was over before it")
TEARDOWNS = 5

Check = Callable[[Machine, Probe], Finding]


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the checks; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--handovers", type=int, default=HANDOVERS, help="children to replace; default: %(default)s"
    )
    parser.add_argument("--engine", help="try this engine, and not the device itself")
    parser.add_argument("--bench", action="store_true", help="measure, and try nothing else")
    parser.add_argument("--quick", action="store_true", help="measure a narrow model on few lines")
    parser.add_argument("--report", type=Path, help="where to write all of it, as a Markdown page")
    parser.add_argument(
        "--engine-options", type=json.loads, default={}, help="what it is loaded with, as JSON"
    )
    parser.add_argument("--engine-python", type=Path, help="the interpreter that it runs in")
    parser.add_argument(
        "--limit",
        type=int,
        help=f"seconds for it all; default: {LIMIT_SECONDS}, with --engine or --bench "
        f"{LONG_LIMIT_SECONDS}",
    )
    asked = parser.parse_args(arguments)
    checks = chosen_checks(asked)
    limit = asked.limit or (LONG_LIMIT_SECONDS if asked.engine or asked.bench else LIMIT_SECONDS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(limit)
    try:
        machine = survey(dict(os.environ))  # noqa: TID251  they inherit it
        return report(machine, checks, asked.report)
    except KeyboardInterrupt:
        print(f"Stopped before the end, after {limit} s at most.", file=sys.stderr)
        return EXIT_FAILED
    except NoDeviceError as reason:
        print(f"Nothing to check: {reason}", file=sys.stderr)
        return EXIT_NO_DEVICE
    except CheckError as error:
        print(f"{error}", file=sys.stderr)
        return EXIT_FAILED


def chosen_checks(asked: argparse.Namespace) -> Mapping[str, Check]:
    """What is tried, by the command line."""
    subject = None
    if asked.engine is not None:
        subject = Subject(asked.engine, asked.engine_options, asked.engine_python)
    if asked.bench:
        return benchmarks(subject, quick=asked.quick)
    return device_checks(asked.handovers) if subject is None else engine_checks(subject)


def benchmarks(subject: Subject | None, *, quick: bool) -> Mapping[str, Check]:
    """What is measured."""

    def batches(machine: Machine, _observer: Probe) -> Finding:
        return bench_batches(machine, quick=quick)

    def speaks(one: Subject, machine: Machine, _observer: Probe) -> Finding:
        return bench_engine(machine, one, quick=quick)

    subjects = [MODEL] if subject is None else [MODEL, subject]
    return {**{one.name: partial(speaks, one) for one in subjects}, "batches": batches}


def device_checks(handovers: int) -> Mapping[str, Check]:
    """What is tried of the device."""
    return {
        "pid": match_pid,
        "teardown": time_teardown,
        "handovers": partial(hand_over, count=handovers),
        "headroom": break_first,
        "empty_cache": time_empty_cache,
    }


def engine_checks(subject: Subject) -> Mapping[str, Check]:
    """What is tried of an engine."""
    return {
        "conformance": partial(conforms, subject=subject),
        "work": partial(works, subject=subject),
    }


def report(machine: Machine, checks: Mapping[str, Check], page: Path | None) -> int:
    """Print what each check finds, and everything at the end."""
    print(f"{machine.name}, {machine.free // MIB} MiB free", flush=True)
    began = time.monotonic()
    findings = dict.fromkeys(checks, NOT_YET)
    try:
        with Probe(machine.env) as observer:
            for name, check in checks.items():
                findings[name] = carry_out(check, machine, observer)
                print(line(name, findings[name]), flush=True)
    finally:
        if page is not None:
            write(page, as_page(machine.name, time.monotonic() - began, findings))
    print(as_json(machine.name, time.monotonic() - began, findings))
    return 0 if all(found.ok for found in findings.values()) else EXIT_FAILED


def carry_out(check: Check, machine: Machine, observer: Probe) -> Finding:
    """What a check finds, or why it found nothing."""
    try:
        return check(machine, observer)
    except (CheckError, NoDeviceError, VoicemillError, httpx.HTTPError) as error:
        return Finding(False, str(error))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(False, f"{type(error).__name__}: {error}")


def match_pid(machine: Machine, _observer: Probe) -> Finding:
    """A process finds its own memory, by its pid or by what stands in for that."""
    with Probe(machine.env) as holder:
        holder.take(machine.small)
        device = holder.device()
    own, source, reason = (device[name] for name in ("own_bytes", "measured_by", "reason"))
    context = machine.context // MIB
    figures = {"measured_by": source, "reason": reason, "context_mib": context}
    if own is None:
        return Finding(False, reason, figures)
    text = f"{own // MIB} MiB by the figure of the {source}, {context} of them the context"
    return Finding(own >= machine.small, f"{text} {reason or ''}".strip(), figures)


def time_teardown(machine: Machine, observer: Probe) -> Finding:
    """How long after SIGKILL half of the device is free again."""
    size, since_kill, since_end = machine.free // 2, [], []
    for _ in range(TEARDOWNS):
        with Probe(machine.env) as holder:
            before = observer.used()
            holder.take(size)
            killed = time.perf_counter()
            holder.kill()
            ended = time.perf_counter()
            observer.wait_for(before + machine.small)
            back = time.perf_counter()
        since_kill.append(1000 * (back - killed))
        since_end.append(1000 * (back - ended))
    figures = {
        "mib": size // MIB,
        "median_ms": round(statistics.median(since_kill), 1),
        "worst_ms": round(max(since_kill), 1),
        "worst_after_end_ms": round(max(since_end), 1),
    }
    text = (
        "{mib} MiB are back {median_ms} ms after SIGKILL, {worst_ms} ms at worst: "
        "{worst_after_end_ms} ms after the process had ended"
    )
    return Finding(True, text.format(**figures), figures)


def hand_over(machine: Machine, observer: Probe, count: int) -> Finding:
    """Children that leak are replaced by warm ones."""
    # Warm, a child holds two pieces; two or three items later it is over.
    limit = machine.context + machine.small * 9 // 2
    done = recycle(machine, observer, leak=machine.small, limit=limit, count=count)
    reasons = sorted({one["reason"] for one in done.recycles})
    seconds = done.handover_seconds
    figures = {
        "count": len(seconds),
        "breaks": done.breaks,
        "items": done.items,
        "reasons": reasons,
        "median_seconds": round(statistics.median(seconds), 2) if seconds else None,
        "worst_seconds": round(max(seconds), 2) if seconds else None,
    }
    text = (
        "{count} in a row over {items} items, each spoken once; a successor was ready "
        "{median_seconds} s after its start, {worst_seconds} s at worst; {breaks} left first"
    )
    ok = reasons == ["gpu_memory"] and not done.breaks
    return Finding(ok, text.format(**figures), figures)


def break_first(machine: Machine, observer: Probe) -> Finding:
    """Where no two children fit, the old one leaves first, and nothing is lost either."""
    # Warm, a child holds a third of the device; over its limit, seven tenths.
    leak = machine.free * 18 // 100
    limit = machine.context + leak * 7 // 2
    done = recycle(machine, observer, leak=leak, limit=limit, count=BREAKS)
    figures = {"breaks": done.breaks, "recycles": len(done.recycles), "items": done.items}
    text = (
        "{breaks} of {recycles} children that filled the device left before their successors "
        "were started; {items} items, each spoken once"
    )
    return Finding(done.breaks == len(done.recycles), text.format(**figures), figures)


def conforms(machine: Machine, _observer: Probe, subject: Subject) -> Finding:
    """The engine keeps to what all do."""
    counts = conform(machine, subject)
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return Finding(set(counts) == {"passed"}, f"{text} tests of the suite", counts)


def works(machine: Machine, observer: Probe, subject: Subject) -> Finding:
    """The engine speaks through the queue, and its children are replaced."""
    done = work(machine, observer, subject)
    figures = {
        "items": done.recycled.items,
        "recycles": len(done.recycled.recycles),
        "breaks": done.recycled.breaks,
        "start_seconds": round(done.start_seconds, 1),
        "warmup_seconds": round(done.warmup_seconds, 1),
        "real_time": round(done.real_time, 2),
    }
    text = (
        "{items} items, each spoken once, {real_time} times as fast as they sound; ready "
        "{start_seconds} s after the start; {recycles} children replaced, {breaks} of which left "
        "first, by ones that were warm after {warmup_seconds} s"
    )
    return Finding(True, text.format(**figures), figures)


if __name__ == "__main__":
    sys.exit(main())
