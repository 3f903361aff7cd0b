"""Block scales: scale words of the lanes and their {byte-id, thread-id} to scales of A and B.

PTX ISA 9.7.14.3. Not run on hardware: no recording of a block-scaled instruction exists here.
"""

from __future__ import annotations

from dtypes import Array
from emulator.arrays import as_array
from emulator.errors import OperandError, listing, shown
from emulator.isa.matrix import MatrixInstruction
from emulator.isa.signature import is_immediate


def gather_scales(
    ins: MatrixInstruction, operand: str, words: Array, byte_id: int, thread_id: int
) -> Array:
    """Scale codes: ``(…, m, v)`` of scale_a, ``(…, v, n)`` of scale_b, from words ``(…, 32)``
    or, as fragments have them, ``(…, 32, 1)``.

    Raises OperandError for words of another shape and for ids out of range.
    """
    chosen = chosen_scales(ins, operand, byte_id, thread_id)
    words = scale_words(ins, operand, words)
    return ins.fragment(operand).gather(words[..., None])[..., chosen, :, :]


def chosen_scales(ins: MatrixInstruction, operand: str, byte_id: int, thread_id: int) -> int:
    """Index of the selected matrix of scales that the lanes hold; raises OperandError."""
    bytes_, threads = ins.legal_ids(operand)
    suffix = operand[-1]
    for name, given, legal in (
        (f"byte_id_{suffix}", byte_id, bytes_),
        (f"thread_id_{suffix}", thread_id, threads),
    ):
        if not is_immediate(given, legal):
            raise OperandError(
                f"{name} is {shown(given)}; with scale_vec::{ins.scale_vec} legal: {listing(legal)}"
            )
    return byte_id // ins.scale_chunks * len(threads) + thread_id


def scale_words(ins: MatrixInstruction, operand: str, words: Array) -> Array:
    """Scales as ``(…, 32)`` words, one for each lane, or OperandError."""
    fragment = ins.fragment(operand)
    words = as_array(words, operand)
    if words.shape[-2:] == (fragment.lanes, 1):
        words = words[..., 0]
    if words.shape[-1:] != (fragment.lanes,):
        raise OperandError(f"{operand} is one word per lane, uint32 (…, 32); got {words.shape}")
    return fragment.check_registers(words[..., None])[..., 0]
