"""The torch that the stand-in computes with."""

import os

if os.environ.get("COSYVOICE_STAND_IN_TORCH") == "real":
    import torch
else:
    from cosyvoice import plain_torch as torch

__all__ = ["torch"]
