"""Device memory by the driver's own CUDA library; no torch is needed."""

from __future__ import annotations

import ctypes
from typing import Any

from voicemill.errors import EnginePoisonedError, OutOfMemoryError

OUT_OF_MEMORY = 2


class CudaError(Exception):
    """CUDA refused a call."""

    def __init__(self, call: str, status: int, name: str) -> None:
        super().__init__(f"{call} gave {name}")
        self.status = status


class DeviceMemory:
    """A context on the first device that CUDA shows this process, and memory taken for good.

    Raises ``OSError`` where there is no CUDA library, ``CudaError`` where there is no device, and
    ``OutOfMemoryError`` where the device has no room for the context.
    """

    def __init__(self) -> None:
        self.taken = 0
        """Bytes, the context's own not among them."""
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        device = ctypes.c_int()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        try:
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        except CudaError as error:
            if error.status == OUT_OF_MEMORY:
                raise OutOfMemoryError("The device had no memory left for a context.") from error
            raise

    def take(self, size: int) -> None:
        """Take bytes that only the end of the process gives back."""
        pointer = ctypes.c_uint64()
        try:
            self._call("cuCtxSetCurrent", self._context)
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        except CudaError as error:
            if error.status == OUT_OF_MEMORY:
                raise OutOfMemoryError("The device had no memory left.") from error
            raise EnginePoisonedError(f"CUDA failed: {error}.") from error
        self.taken += size

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(text))
            raise CudaError(name, status, (text.value or b"an unknown error").decode())
