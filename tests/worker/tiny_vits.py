"""A VITS model so small that a test can make it: the real architecture, random weights."""

from __future__ import annotations

from pathlib import Path

from benchmarks.parts.vits import SAMPLE_RATE_HZ, make_vits

__all__ = ["SAMPLE_RATE_HZ", "make_tiny_vits"]


def make_tiny_vits(path: Path, *, speakers: int = 1) -> None:
    """Save a model and its tokenizer (a to z, blank, hyphen, apostrophe) at ``path``."""
    make_vits(
        path,
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
    )
