"""What a user gives the fault finder, as kernels: the right one, and the one that was passed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtypes import FORMATS, Array, Format, array_type, code_type, codes_from_array, place
from emulator.errors import OperandError, UndefinedError, hint, listing
from emulator.isa.instruction import Instruction
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.addressing import WINDOW
from emulator.layout.descriptor import Descriptor
from emulator.layout.tile import TileShape
from emulator.targets import Target
from emulator.tools.faults.kernel import Kernel
from emulator.warp.scales import gather_scales
from emulator.warp.sparse import check_selector, decompress, metadata

#: what a kernel passed, by its name as an argument -> name of the words
_REGISTERS = {
    "registers_a": "a", "registers_b": "b", "registers_c": "c", "e": "e",
    "registers_scale_a": "scale_a", "registers_scale_b": "scale_b",
    "shared": "shared", "descriptor_a": "descriptor_a", "descriptor_b": "descriptor_b",
}  # fmt: skip
#: arguments of the instruction, by the kind of instruction that takes them
_OPTIONS = {
    "sparse": ("selector",),
    "scaled": ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b"),
    "wgmma": ("scale_d", "imm_scale_a", "imm_scale_b", "imm_trans_a", "imm_trans_b"),
}
_LAYOUT = ("swizzle_bytes",)
#: where canonical tiles of A and B start, if the user gives no memory
_TILE_BYTES = WINDOW // 2


class Given:
    """The arguments of `find_faults`, checked; all matrices as codes."""

    def __init__(
        self, ins: object, target: Target, matrices: dict[str, Any], passed: dict[str, Any]
    ) -> None:
        if not isinstance(ins, MatrixInstruction):
            what = str(ins) if isinstance(ins, Instruction) else repr(ins)
            raise OperandError(
                f"the fault finder takes an mma, mma.sp or wgmma Instruction; got {what:.120}"
            )
        ins.recipe(target)  # raises where the target lacks the instruction
        self.ins, self.target = ins, target
        self._check_names(passed)
        kinds = {"sparse": ins.is_sparse, "scaled": ins.is_block_scaled, "wgmma": ins.is_wgmma}
        legal = [x for kind, yes in kinds.items() if yes for x in _OPTIONS[kind]]
        self.options = {x: _scalar(x, passed[x]) for x in legal if passed.get(x) is not None}
        self.swizzle = passed.get("swizzle_bytes")
        self.codes = {x: self._codes(x, y) for x, y in matrices.items() if y is not None}
        self.words = {
            _REGISTERS[x]: y for x, y in passed.items() if x in _REGISTERS and y is not None
        }
        self.steps = self._steps()
        self.words = {x: self._words(x, y) for x, y in self.words.items()}
        if self.steps > 1 and ins.c_type != ins.d_type:
            raise OperandError(f"{ins} accumulates over k in no loop: C and D differ in type")

    def _check_names(self, passed: dict[str, Any]) -> None:
        ins = self.ins
        legal = ["registers_c"]
        legal += ["registers_a"] if not ins.is_wgmma else []
        legal += ["registers_a", "shared", "descriptor_a", "descriptor_b", *_LAYOUT,
                  *_OPTIONS["wgmma"]] if ins.is_wgmma else ["registers_b"]  # fmt: skip
        legal += ["e", *_OPTIONS["sparse"]] if ins.is_sparse else []
        if ins.is_block_scaled:
            legal += ["registers_scale_a", "registers_scale_b", *_OPTIONS["scaled"]]
        for name, value in passed.items():
            if value is not None and name not in legal:
                raise OperandError(
                    f"the fault finder takes no {name!r} with {ins}; it takes "
                    f"{listing(legal, 20)}{hint(name, legal)}"
                )

    def _codes(self, name: str, given: Any) -> Array:
        ins = self.ins
        scale = name.startswith("scale")
        if scale and not ins.is_block_scaled:
            raise OperandError(f"{ins} has no block scales")
        fmt = FORMATS[ins.scale_type if scale else getattr(ins, f"{name}_type")]
        codes = as_codes(name if scale else name.upper(), fmt, given)
        if ins.form.pipe == "quad" and codes.ndim == 2:
            # m8n8k4.f16 computes four: one matrix is meant for all of them.
            return np.broadcast_to(codes, (4, *codes.shape))
        return codes

    # --- shapes ---

    def _steps(self) -> int:
        """K / k, from what was given; raises OperandError for a matrix of another shape."""
        ins = self.ins
        units = {"a": (-1, ins.k), "b": (-2, ins.k), "scale_a": (-1, ins.scale_chunks),
                 "scale_b": (-2, ins.scale_chunks)}  # fmt: skip
        found = {}
        for name, (axis, unit) in units.items():
            if name not in self.codes:
                continue
            shape, dims = self.codes[name].shape, 3 if ins.form.pipe == "quad" else 2
            fixed = ins.m if name in ("a", "scale_a") else ins.n
            if (
                len(shape) != dims
                or shape[-3 - axis] != fixed
                or shape[axis] % unit
                or not shape[axis]
            ):
                sides = (f"{fixed}", f"{unit} (or a multiple)")
                want = ", ".join(sides if axis == -1 else sides[::-1])
                extra = " with its zeros (the full matrix)" if ins.is_sparse and name == "a" else ""
                raise OperandError(
                    f"{name.upper() if len(name) == 1 else name} of {ins} is ({want}){extra}; "
                    f"got {shape}"
                )
            found[name] = shape[axis] // unit
        for name, given in self.words.items():
            axes = self._dims(name)
            if axes is not None and np.ndim(given) == axes + 1:
                found[name] = len(given)
        counts = set(found.values())
        if len(counts) > 1:
            raise OperandError(
                "the operands differ in k: steps of k are "
                + ", ".join(f"{x} {n}" for x, n in found.items())
            )
        return counts.pop() if counts else 1

    def _dims(self, name: str) -> int | None:
        """Axes of the words of one step."""
        if name in ("c", "shared"):
            return None
        return 0 if name.startswith("descriptor") else 1 if name in ("e", *_SCALES) else 2

    def _words(self, name: str, given: Any) -> Array:
        """Words with an axis of steps, as `Kernel` has them."""
        if isinstance(given, Descriptor):
            given = given.encode()
        array, dims = np.asarray(given), self._dims(name)
        if name == "shared":
            if array.dtype != np.uint8 or array.ndim != 1:
                raise OperandError(f"shared is uint8 (bytes,); got {array.dtype} {array.shape}")
            return array
        if name.startswith("descriptor"):
            if array.dtype.kind not in "iu":
                raise OperandError(f"{name} is a 64-bit word; got {array.dtype}")
            array = array.astype(np.uint64)
        elif name in ("e", *_SCALES):
            if array.dtype.itemsize != 4 or array.dtype.kind not in "iu":
                raise OperandError(f"{name} is one 32-bit word per lane; got {array.dtype}")
            array = array.view(np.uint32)
            if array.shape[-1:] == (1,):
                array = array[..., 0]
            if array.shape[-1:] != (self.ins.lanes,):
                raise OperandError(
                    f"{name} is one word per lane, ({self.ins.lanes},); got {array.shape}"
                )
        else:
            fragment = self.ins.fragment(name)
            if array.dtype.itemsize * 8 == fragment.word_bits and array.dtype.kind in "iuf":
                array = array.view(f"u{fragment.word_bits // 8}")
            array = fragment.check_registers(array)
        if dims is None:
            if array.ndim != 2:
                raise OperandError(f"registers of {name} are (lanes, registers); got {array.shape}")
            return array
        if array.ndim == dims:
            array = np.broadcast_to(array, (self.steps, *array.shape))
        if array.ndim != dims + 1 or len(array) != self.steps:
            raise OperandError(
                f"{name} has {array.shape}: at most one leading axis, of {self.steps} steps along k"
            )
        return np.ascontiguousarray(array)

    # --- kernels ---

    def right(self) -> Kernel:
        """What a right kernel passes: from matrices, and from words where there is no matrix."""
        ins = self.ins
        words: dict[str, Array] = {}
        codes = dict(self.codes)
        fragment = ins.fragment("c")
        shape = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
        codes.setdefault("c", np.zeros(shape, code_type(fragment.fmt.bits)))
        if "c" in self.words and "c" not in self.codes:
            words["c"] = self.words["c"]
        else:
            words["c"] = ins.fragment("c").scatter(codes["c"])
        if ins.is_sparse:
            codes = self._compressed(codes, words)
        for name in ("a", "b"):
            own = f"descriptor_{name}"
            if name in codes and not (ins.is_wgmma and (name == "b" or "a" not in self.words)):
                parts = np.stack(np.split(codes[name], self.steps, -1 if name == "a" else -2))
                words[name] = ins.fragment(name).scatter(parts)
            elif name not in codes and name in self.words:
                words[name] = self.words[name]
            elif name not in codes and own not in self.words:
                registers = "" if ins.is_wgmma and name == "b" else f" or registers_{name}="
                raise OperandError(f"{name.upper()} is missing: the matrix {name}={registers}")
        for name in _SCALES if ins.is_block_scaled else ():
            words[name] = self._scales(name)
        if not ins.is_wgmma:
            return Kernel(ins, self.target, words, self.options)
        return self._in_memory(words, codes)

    def passed(self, right: Kernel) -> Kernel:
        """The right kernel, with all that the user's kernel passed in its place."""
        words = dict(right.words)
        for name, given in self.words.items():
            if name == "a":
                words.pop("descriptor_a", None)
            if name == "descriptor_a":
                words.pop("a", None)
            words[name] = given
        return Kernel(self.ins, self.target, words, self.options)

    def _compressed(self, codes: dict[str, Array], words: dict[str, Array]) -> dict[str, Array]:
        """A full A to stored elements and metadata; the user's own where they mean the same."""
        fragment, chosen = self.ins.fragment("e"), self.options.get("selector", 0)
        check_selector(self.ins, chosen)
        mine = self.words.get("e")
        if "a" not in codes:
            if mine is None:
                raise OperandError("e= (metadata words) is missing beside registers_a=")
            words["e"] = mine
            return codes
        tiles = np.split(codes["a"], self.steps, -1)
        if mine is not None and "a" in self.words and self._means(tiles):
            words["e"] = mine
            parts = self.ins.fragment("a").gather(self.words["a"])
            return codes | {"a": np.concatenate(list(parts), -1)}
        both = [metadata(self.ins, tile) for tile in tiles]
        blank = np.zeros((self.steps, self.ins.lanes), np.uint32)
        # Lanes that the selector does not read hold what the user's hold, or nothing.
        groups = fragment.gather((blank if mine is None else mine)[..., None]).copy()
        nibbles = np.stack([x for _, x in both])
        if fragment.groups > 1:
            groups[..., chosen, :, :] = nibbles
        else:
            groups = nibbles
        words["e"] = fragment.scatter(groups)[..., 0]
        return codes | {"a": np.concatenate([x for x, _ in both], -1)}

    def _means(self, tiles: list[Array]) -> bool:
        """Whether the user's registers of a and e are A, in whatever way its zeros are stored."""
        parts = self.ins.fragment("a").gather(self.words["a"])
        try:
            full = decompress(self.ins, parts, self.words["e"], self.options.get("selector", 0))
        except (UndefinedError, OperandError):
            return False
        return bool((full == np.stack(tiles)).all())

    def _scales(self, name: str) -> Array:
        ins, x = self.ins, name[-1]
        if name not in self.codes:
            if name not in self.words:
                raise OperandError(f"{name}= or registers_{name}= is missing")
            return self.words[name]
        fragment = ins.fragment(name)
        given = self.words.get(name)
        blank = np.zeros((self.steps, ins.lanes), np.uint32) if given is None else given
        codes = fragment.gather(blank[..., None]).copy()
        byte, thread = (self.options.get(f"{what}_id_{x}", 0) for what in ("byte", "thread"))
        gather_scales(ins, name, blank, byte, thread)  # checks the ids
        threads = len(ins.legal_ids(name)[1])
        group = byte // ins.scale_chunks * threads + thread
        axis = -1 if name == "scale_a" else -2
        codes[..., group, :, :] = np.stack(np.split(self.codes[name], self.steps, axis))
        return fragment.scatter(codes)[..., 0]

    def _in_memory(self, words: dict[str, Array], codes: dict[str, Array]) -> Kernel:
        """The tiles of wgmma: in the user's memory, or in one made for them."""
        ins = self.ins
        own = [x for x in ("descriptor_a", "descriptor_b") if x in self.words]
        if own and "shared" not in self.words:
            raise OperandError(f"{own[0]} leads into shared memory: shared= is missing")
        wanted = [x for x in "ab" if x in codes and x not in words]
        memory = self.words.get("shared")
        shared = np.zeros(WINDOW, np.uint8) if memory is None or wanted else memory.copy()
        if memory is not None and wanted:
            shared[: min(len(memory), WINDOW)] = memory[:WINDOW]
        words["shared"] = shared
        for x in own:
            if x != "descriptor_a" or "a" not in words:
                words[x] = self.words[x]
        kernel = Kernel(ins, self.target, words, self.options)
        for name in wanted:
            kernel = kernel.using(**{f"descriptor_{name}": self._descriptors(kernel, name)})
        for name in wanted:
            kernel = kernel.holding(name, codes[name])
        return kernel

    def _descriptors(self, kernel: Kernel, name: str) -> Array:
        """Descriptors of a canonical tile of all of k, one for each step."""
        ins = self.ins
        rows, k, where, major = kernel.tile(name)
        fmt = FORMATS[ins.a_type if name == "a" else ins.b_type]
        row_bytes = max(1, where.width * k * self.steps // 8) if major == "k" else rows * 2
        chosen = self.swizzle
        if chosen is None:
            chosen = next((x for x in (128, 64, 32) if row_bytes % x == 0), 0)
        start = 1024 if name == "a" else _TILE_BYTES
        placed = Descriptor.for_tile(rows, k * self.steps, fmt, major=major,
                                     swizzle_bytes=chosen, start_address=start)  # fmt: skip
        tile = TileShape.of(rows, k * self.steps, fmt, major)
        first = placed.descriptor.addresses(tile)[0]
        steps = first[:: len(first) // self.steps] - first[0]
        return np.array([placed.descriptor.stepped(int(x)).encode() for x in steps], np.uint64)


_SCALES = ("scale_a", "scale_b")


def as_codes(name: str, fmt: Format, given: Any) -> Array:
    """An array of the format's type, of codes, or of integers in range, as codes.

    Raises OperandError for any other array.
    """
    array = np.asarray(given)
    try:
        return codes_from_array(fmt, array)
    except TypeError:
        pass
    if array.dtype.kind == "i" and fmt.kind == "integer" and array.size:
        low = -(1 << fmt.bits - 1) if fmt.signed else 0
        if low <= int(array.min()) and int(array.max()) < low + (1 << fmt.bits):
            array = array.astype(np.int64).view(np.uint64) & np.uint64(fmt.code_mask)
    if array.dtype.kind != "u" or (array.size and int(array.max()) > fmt.code_mask):
        wanted = array_type(fmt)
        raise OperandError(
            f"{name} is {fmt.name}: an array of {wanted or 'codes'}, or its codes as unsigned "
            f"integers; got {array.dtype} {array.shape}" + _cast_hint(fmt, array)
        )
    return array.astype(code_type(place(fmt).code_bits), copy=False)


def _cast_hint(fmt: Format, array: Array) -> str:
    return " (round it with .astype first)" if array.dtype.kind == "f" and fmt.is_float else ""


def _scalar(name: str, given: Any) -> int | bool:
    """An immediate; a file has it as an array of no or one dimension."""
    array = np.asarray(given)
    if array.size != 1 or array.dtype.kind not in "iub":
        raise OperandError(f"{name} is one integer; got {given!r:.80}")
    number = int(array.reshape(-1)[0])
    return bool(number) if name == "scale_d" else number
