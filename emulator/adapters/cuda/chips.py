"""Attributes of GPUs: the numbers behind ``cuDeviceGetAttribute``."""

from __future__ import annotations

from functools import cache

from emulator.adapters.cuda.settings import settings
from emulator.targets import Board, Processor, Target


def board() -> Board:
    """The sizes of the GPU."""
    return settings().chip.board


def processor() -> Processor:
    """A multiprocessor of the GPU."""
    return settings().chip.processor


def target() -> Target:
    """The target that the GPU runs."""
    return settings().chip.target


@cache
def attributes() -> dict[int, int]:
    """CUdevice_attribute -> value; what is missing is 0."""
    number, one = target().number, processor()
    processors, _, clock, bus, cache_mib = board()
    shared = one.shared_kib << 10
    return {
        1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535,  # threads, blocks
        8: 48 << 10, 9: 64 << 10, 10: 32, 11: 2**31 - 1, 12: 65536, 13: clock, 14: 512, 15: 1,
        16: processors, 19: 1, 21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384,
        27: 32768, 28: 32768, 29: 2048, 42: 32768, 43: 2048, 45: 32768, 46: 32768, 47: 8192,
        48: 8192, 49: 32768, 52: 32768, 53: 32768, 54: 2046, 55: 32768, 56: 131072, 57: 65536,
        58: 16384, 59: 16384, 60: 16384, 61: 32768, 62: 2048, 63: 32768, 64: 32768, 65: 2048,
        66: 32768, 67: 32768, 68: 2046, 70: 131072, 71: 65000, 72: 2097120, 73: 32768, 74: 32768,
        77: 32768,
        30: 512, 31: 1, 32: 1, 33: 1, 36: 2_619_000, 37: bus, 38: cache_mib << 20,
        39: one.threads, 40: 3, 41: 1, 51: 32, 75: number // 10, 76: number % 10, 78: 1, 79: 1,
        80: 1, 81: shared, 82: 65536, 83: 1, 87: one.double_ratio, 89: 1, 90: 1, 91: 1, 95: 1,
        97: target().shared_limit, 99: 1, 102: 1, 103: 1, 106: one.blocks, 107: 1,
        108: (cache_mib << 20) * 5 // 8, 111: target().reserved_shared,
        115: 1, 119: 1, 120: int("sm_90" in target().features), 125: 1,
        127: int("sm_90" in target().features), 134: -1,
    }  # fmt: skip
