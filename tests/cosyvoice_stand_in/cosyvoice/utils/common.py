"""Chance, for the whole process at once."""

import random

import numpy as np
from cosyvoice.which_torch import torch


def set_all_random_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
