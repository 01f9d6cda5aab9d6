"""Takes the root logger over when it is imported, and reads clips."""

import logging

import numpy as np
import soundfile

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(message)s")
logging.getLogger().setLevel(logging.DEBUG)

opened = []


def load_wav(wav, target_sr, min_sr=16000):
    """Mono samples of shape (samples,) at the target rate."""
    opened.append(str(wav))
    samples, rate = soundfile.read(str(wav), dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    if rate != target_sr:
        assert rate >= min_sr, f"wav sample rate {rate} must be greater than {target_sr}"
        seconds = len(mono) / rate
        at = np.arange(int(seconds * target_sr)) / target_sr * rate
        mono = np.interp(at, np.arange(len(mono)), mono)
    return mono
