"""Where PyTorch computes: on a GPU if there is one, and the caller's choice before all."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any


def import_torch() -> Any:
    """Import PyTorch, or say how it is installed."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("this needs PyTorch: pip install 'caliope[torch]'.") from error
    return torch


@cache
def cuda_is_there() -> bool:
    """Whether PyTorch can compute on a GPU. It is imported only where a driver is installed."""
    if find_spec("torch") is None:
        return False
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return bool(import_torch().cuda.is_available())


def choose_device(device: str | None) -> str:
    """Return the device as asked for, else ``"cuda"`` where there is a GPU and ``"cpu"`` elsewhere."""
    if device is None:
        return "cuda" if cuda_is_there() else "cpu"
    if not isinstance(device, str) or device.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cpu', 'cuda', 'cuda:1' and the like, or None, got {device!r}.")
    if device != "cpu" and not cuda_is_there():
        raise ValueError(f"device is {device!r}, but PyTorch finds no GPU here. Leave it out, or say 'cpu'.")
    return device
