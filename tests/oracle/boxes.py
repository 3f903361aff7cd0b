"""Maps, places and memory for the tests of tensor copies."""

import numpy as np

from emulator import TensorMap
from emulator.memory.tensor_copy import MODES
from emulator.memory.tensor_map_bits import ELEMENT_TYPES, SWIZZLES

#: where the tensors of these tests lie
BASE = 1 << 32


class Memory:
    """Bytes at an address, as `load_box` and its like want them; refuses all other addresses."""

    def __init__(self, data, base=BASE):
        self.data, self.base = np.array(data).reshape(-1).view(np.uint8), base

    def index(self, addresses, size):
        index = (addresses - self.base)[:, None] + np.arange(size)
        assert index.size == 0 or (index.min() >= 0 and index.max() < len(self.data))
        return index

    def read(self, addresses, size):
        return self.data[self.index(addresses, size)]

    def write(self, addresses, rows):
        self.data[self.index(addresses, rows.shape[-1])] = rows


def shared_image(copy, box, address, size):
    """Shared memory of `size` bytes after a box has arrived at `address`."""
    shared = np.zeros(size, np.uint8)
    runs = copy.plan.run_addresses(address)[..., None] + np.arange(16)
    shared[runs.reshape(box.shape)] = box
    return shared


def random_map(rng, mode):
    """A small map for `mode`, and the bytes that its tensor takes."""
    dtype = rng.choice([*ELEMENT_TYPES])
    kind = ELEMENT_TYPES[dtype]
    swizzle = rng.choice(SWIZZLES)
    width = 16 << SWIZZLES.index(swizzle) if swizzle != "none" else 64
    row = int(rng.choice([n for n in (16, 32, 48, 64, 128) if n <= width])) // kind.bytes
    rank = int(rng.integers(3, 6) if "im2col" in mode else rng.integers(1, 6))
    if "4" in mode:
        rank = 2
    interleave = rng.choice(["none", "none", "16B", "32B"]) if rank > 2 else "none"
    dims = [int(rng.integers(1, 3 * row)), *(int(n) for n in rng.integers(1, 7, rank - 1))]
    unit = {"none": 16, "16B": 16, "32B": 32}[interleave]
    strides, step = [], dims[0] * (kind.bytes if interleave == "none" else unit)
    for size in dims[1:]:
        step = -(-step // unit) * unit + unit * int(rng.integers(0, 3))
        strides.append(step)
        step *= size
    step = -(-step // 16) * 16
    steps = [1, *(int(n) for n in rng.integers(1, 4, rank - 1))]
    fill = "nan" if kind.is_float and rng.random() < 0.5 else "zeros"
    common = {
        "dtype": dtype, "dims": dims, "strides": strides, "element_strides": steps,
        "swizzle": swizzle, "interleave": interleave, "fill": fill,
    }  # fmt: skip
    if "im2col" in mode:
        lower = [int(n) for n in rng.integers(-2, 2, rank - 2)]
        # A box that is not empty.
        walked = dims[1:-1] if interleave == "none" else dims[:-2]
        smallest = [max(-2, low - n + 1) for low, n in zip(lower, walked, strict=True)]
        upper = [int(rng.integers(low, 3)) for low in smallest]
        return step, TensorMap.im2col(
            BASE, lower=lower, upper=upper, channels=row, pixels=int(rng.integers(1, 30)), **common
        )
    box = [row, *(int(n) for n in rng.integers(1, 6, rank - 1))]
    if "4" in mode:
        box[1] = 1
    return step, TensorMap.tiled(BASE, box=box, **common)


def random_place(rng, tensor_map, mode):
    """Coordinates inside and around the tensor, and offsets."""
    sizes = list(tensor_map.dims)
    if "4" in mode:
        sizes = [sizes[0], *[sizes[1]] * 4]
    coordinates = [int(rng.integers(-3, size + 2)) for size in sizes]
    if not tensor_map.slice_bytes:
        coordinates[0] -= coordinates[0] % (16 // tensor_map.element_type.bytes)
    offsets = [int(n) for n in rng.integers(0, 4, MODES[mode].offsets * (tensor_map.rank - 2))]
    return coordinates, offsets
