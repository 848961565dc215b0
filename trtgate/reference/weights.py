"""The tensors of a decoder under their Hugging Face names: seeded random ones, or those of a folder's safetensors."""

import json
import mmap
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from .settings import SettingsError
from .shapes import Shape

STORED = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
QUERY_SCALE = 8.0  # random heads would attend to everything alike, and an answer would forget its prompt


class Weights:
    """Looks a tensor up by name; a random one is made when it is asked for, in a fixed order for a fixed result."""

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        self._dtype, self._device = dtype, device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._stored = None if shape.folder is None else dict(read_safetensors(shape.folder))

    def matrix(self, name: str, rows: int, columns: int, scale: float = 0.0) -> Tensor:
        """A matrix [rows, columns] = [outputs, inputs]; random ones have spread `scale` or keep a vector's length."""
        if self._stored is not None:
            return self._load(name, (rows, columns))
        values = torch.empty(rows, columns, dtype=self._dtype, device=self._device)
        return values.normal_(0, scale or columns**-0.5, generator=self._generator)

    def norm(self, name: str, size: int) -> Tensor:
        """The weights of a norm [size]; ones where the model is random."""
        if self._stored is not None:
            return self._load(name, (size,))
        return torch.ones(size, dtype=self._dtype, device=self._device)

    def _load(self, name: str, size: tuple[int, ...]) -> Tensor:
        tensor = (self._stored or {}).get(f"{name}.weight")
        if tensor is None or tuple(tensor.shape) != size:
            found = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
            raise SettingsError(f"`{name}.weight` is {found}, expected {size}")
        return tensor.to(self._device, self._dtype)


def read_safetensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of everything in a folder's safetensors, mapped and not read; refuses (`SettingsError`) none."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise SettingsError(f"`{folder}` has no `*.safetensors`")
    for path in paths:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__" and entry["dtype"] in STORED:
                first, last = entry["data_offsets"]
                dtype = STORED[entry["dtype"]]
                count = (last - first) // dtype.itemsize
                yield (
                    name,
                    torch.frombuffer(data, dtype=dtype, count=count, offset=begin + first).view(
                        entry["shape"]
                    ),
                )
