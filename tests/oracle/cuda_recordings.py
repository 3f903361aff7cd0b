"""Random CUDA C++ programs that an H200 ran: their PTX, and digests of what each result was."""

import hashlib
import json
import lzma
from pathlib import Path

import numpy as np
from random_cuda import FLAGS

RECORDED = Path(__file__).resolve().parent.parent / "golden" / "h200_random_cuda.npz"
#: programs that are recorded, each with one set of options
SEEDS = range(31)


def jobs(seeds=SEEDS):
    """Each program with one set of options."""
    return [(seed, list(FLAGS)[seed % len(FLAGS)]) for seed in seeds]


def digests(results):
    """A number for each result, of what all threads have in it."""
    columns = np.ascontiguousarray(results.T, "<u8")
    hashes = [hashlib.blake2b(column.tobytes(), digest_size=8).digest() for column in columns]
    return np.frombuffer(b"".join(hashes), "<u8")


def write(path, found, about):
    """`found`: the PTX and the results of each program, by name."""
    texts = json.dumps({name: text for name, (text, _) in found.items()})
    np.savez_compressed(
        path,
        about=np.frombuffer(json.dumps(about).encode(), np.uint8),
        ptx=np.frombuffer(lzma.compress(texts.encode(), preset=9), np.uint8),
        digests=np.array([digests(results) for _, results in found.values()]),
    )


def read(path=RECORDED):
    """The PTX and the digests of each program, by name; and where they come from."""
    with np.load(path) as file:
        held = dict(file)
    texts = json.loads(lzma.decompress(held["ptx"].tobytes()))
    pairs = zip(texts.values(), held["digests"], strict=True)
    return dict(zip(texts, pairs, strict=True)), json.loads(held["about"].tobytes())
