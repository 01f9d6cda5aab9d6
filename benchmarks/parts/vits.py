"""VITS models of random weights, made where they are needed: the real architecture, no speech."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

SAMPLE_RATE_HZ = 16000
LETTERS = ("|", *string.ascii_lowercase, " ", "-", "'", "<unk>")
SEED = 7
HUSH = 0.05
"""Random weights shout."""

LIKE_MMS: dict[str, Any] = {}
"""The shape of the MMS models: 36 million weights, 145 MB."""
NARROW: dict[str, Any] = {"num_hidden_layers": 2, "upsample_initial_channel": 64}
"""For a trial of what measures."""


def make_vits(path: Path, **shape: Any) -> None:
    """Save a model and its tokenizer (a to z, blank, hyphen, apostrophe) at ``path``.

    ``shape`` is what ``VitsConfig`` takes; what is not named is as in the MMS models.
    """
    import torch
    from transformers import VitsConfig, VitsModel, VitsTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    path.mkdir(parents=True, exist_ok=True)
    vocabulary = path / "vocab.json"
    vocabulary.write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    tokenizer = VitsTokenizer(
        str(vocabulary), pad_token="|", language="en", phonemize=False, normalize=True
    )
    tokenizer.save_pretrained(str(path))
    torch.manual_seed(SEED)
    config = VitsConfig(vocab_size=len(LETTERS), sampling_rate=SAMPLE_RATE_HZ, **shape)
    model = VitsModel(config).eval()
    model.decoder.conv_post.weight.data.mul_(HUSH)
    model.save_pretrained(str(path))
