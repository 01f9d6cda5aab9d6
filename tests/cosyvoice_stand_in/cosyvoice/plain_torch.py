"""As much of torch as is needed, on numpy; its CUDA is there where a test says so."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

int32, float32 = np.int32, np.float32
threads: list[int] = []
_generator = np.random.RandomState(0)


class Tensor:
    def __init__(self, array: Any, device: str = "cpu") -> None:
        self.array = np.asarray(array)
        self.device = device

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def to(self, device: str) -> Tensor:
        return Tensor(self.array, device)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def numpy(self) -> Any:
        if self.device != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy.")
        return self.array

    def tolist(self) -> Any:
        return self.array.tolist()

    def __getitem__(self, where: Any) -> Tensor:
        return Tensor(self.array[where], self.device)


def tensor(values: Any, dtype: Any = None) -> Tensor:
    return Tensor(np.array(values, dtype=dtype))


def zeros(*shape: int, dtype: Any = float32) -> Tensor:
    return Tensor(np.zeros(shape, dtype=dtype))


def concat(tensors: list[Tensor], dim: int = 0) -> Tensor:
    return Tensor(np.concatenate([one.array for one in tensors], axis=dim), tensors[0].device)


def rand(size: int) -> Tensor:
    return Tensor(_generator.random_sample(size))


def manual_seed(seed: int) -> None:
    _generator.seed(seed)


def get_rng_state() -> Any:
    return _generator.get_state()


def set_rng_state(state: Any) -> None:
    _generator.set_state(state)


def set_num_threads(count: int) -> None:
    threads.append(count)


class OutOfMemoryError(RuntimeError):
    pass


class cuda:  # noqa: N801  a module in the real one
    OutOfMemoryError = OutOfMemoryError
    available = os.environ.get("COSYVOICE_STAND_IN_CUDA") == "there"
    emptied = 0

    @classmethod
    def is_available(cls) -> bool:
        return cls.available

    @classmethod
    def empty_cache(cls) -> None:
        cls.emptied += 1

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        pass

    @staticmethod
    def memory_stats() -> dict[str, int]:
        return {"reserved_bytes.all.current": 3000, "allocated_bytes.all.current": 2000}
