"""A vocoder that speaks each row of a padded batch as if it were alone."""

from __future__ import annotations

from typing import Any

import torch


def keep_lengths(vocoder: Any) -> None:
    """Have a vocoder (of convolutions) end each row where its spectrogram does.

    Left alone, what its layers make of the padding reaches back into the end of the speech. Here no
    layer is given any of it: as when the row is alone, there is nothing behind its end.
    """
    ends = Ends()
    vocoder.register_forward_pre_hook(ends.note)
    for layer in vocoder.modules():
        if isinstance(layer, torch.nn.Conv1d | torch.nn.ConvTranspose1d):
            layer.register_forward_pre_hook(ends.cut)


class Ends:
    """Where the rows of the batch in hand end."""

    def __init__(self) -> None:
        self._frames = 1
        self._lengths = torch.zeros(0)

    def note(self, _vocoder: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        """Read the lengths of spectrograms of shape (batch, channels, frames): behind are zeros."""
        is_used = inputs[0].ne(0).any(dim=1).int()
        self._frames = is_used.shape[1]
        self._lengths = self._frames - is_used.flip(1).argmax(dim=1)

    def cut(self, _layer: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
        """The input of a layer, of shape (batch, channels, steps), with zeros behind each end."""
        (given,) = inputs
        if given.shape[0] == 1:
            return None
        steps = given.shape[2]
        ends = self._lengths * (steps // self._frames)
        kept = torch.arange(steps, device=given.device) < ends[:, None]
        return given * kept[:, None, :]
