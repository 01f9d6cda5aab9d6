"""A VITS model so small that a test can make it: the real architecture, random weights."""

from __future__ import annotations

import json
import string
from pathlib import Path

SAMPLE_RATE_HZ = 16000


def make_tiny_vits(path: Path, *, speakers: int = 1) -> None:
    """Save a model and its tokenizer (a to z, blank, hyphen, apostrophe) at ``path``."""
    import torch
    from transformers import VitsConfig, VitsModel, VitsTokenizer

    path.mkdir(parents=True, exist_ok=True)
    letters = ["|", *string.ascii_lowercase, " ", "-", "'", "<unk>"]
    vocabulary = path / "vocab.json"
    vocabulary.write_text(json.dumps({letter: number for number, letter in enumerate(letters)}))
    tokenizer = VitsTokenizer(
        str(vocabulary), pad_token="|", language="en", phonemize=False, normalize=True
    )
    tokenizer.save_pretrained(str(path))
    torch.manual_seed(7)
    config = VitsConfig(
        vocab_size=len(letters),
        hidden_size=16,
        num_hidden_layers=1,
        ffn_dim=32,
        flow_size=16,
        spectrogram_bins=33,
        num_speakers=speakers,
        speaker_embedding_size=8 if speakers > 1 else 0,
        upsample_initial_channel=32,
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        duration_predictor_filter_channels=16,
        prior_encoder_num_flows=1,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
        use_stochastic_duration_prediction=False,
        sampling_rate=SAMPLE_RATE_HZ,
    )
    model = VitsModel(config).eval()
    model.decoder.conv_post.weight.data.mul_(0.05)  # random weights shout
    model.save_pretrained(str(path))
