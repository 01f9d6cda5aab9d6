"""Models that ONNX Runtime runs: threads by share, memory that stays flat, faults by our names."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoModel,
    NotImplemented,
    RuntimeException,
)

from voicemill.errors import OutOfMemoryError, SynthesisError
from worker.engines.no_memory import says_want
from worker.environment import thread_share

logger = logging.getLogger(__name__)

FAULTS = (
    *(EPFail, Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoModel, NotImplemented),
    RuntimeException,
)


def session(path: Path) -> onnxruntime.InferenceSession:
    """A model on the CPU.

    Its arena would keep a block for each length of text that it ever saw, so it has none. What it
    draws at random begins otherwise in each session: else a fresh child would speak badly what the
    one before it spoke badly.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = thread_share(), 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    logger.info(
        "ONNX Runtime %s: %d threads, no arena, no memory pattern, for %s",
        onnxruntime.__version__,
        options.intra_op_num_threads,
        path.name,
    )
    onnxruntime.set_seed(secrets.randbits(31))
    return onnxruntime.InferenceSession(
        str(path), sess_options=options, providers=["CPUExecutionProvider"]
    )


@contextmanager
def named_faults() -> Iterator[None]:
    """ONNX Runtime's errors by our names."""
    try:
        yield
    except FAULTS as error:
        if says_want(str(error)):
            raise OutOfMemoryError("The host had no memory left for a segment.") from error
        raise SynthesisError("ONNX Runtime could not run the model.") from error
    except MemoryError as error:
        raise OutOfMemoryError("The host had no memory left for a segment.") from error
