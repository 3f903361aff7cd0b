"""A user's inputs of the fault finder as kernels: the right one, and the one that was passed."""

from __future__ import annotations

import numpy as np

from dtypes import FORMATS, Array, code_type
from emulator.arrays import as_array
from emulator.errors import OperandError, UndefinedError, hint, listing, quoted, shown
from emulator.isa.matrix import MatrixInstruction
from emulator.layout.descriptor import Descriptor, as_words
from emulator.layout.tile import WINDOW, TileShape
from emulator.targets import Target
from emulator.tools.faults.copies import as_boxes, filled
from emulator.tools.faults.kernel import Copies, RecordedKernel, Rows, split_k
from emulator.tools.faults.rows import load_rows
from emulator.tools.operands import ONE_WORD, as_codes, gather, scatter, tile_in_memory, traits
from emulator.warp.sparse import check_selector, decompress, metadata

_SCALES = ("scale_a", "scale_b")
#: what a kernel passed, by its name as an argument -> name of the words; "": one number
_ALL = {
    "registers_a": "a", "registers_c": "c", "addresses_a": "addresses_a", "trans_a": "",
    "shared": "shared",
}  # fmt: skip
_NOT_WGMMA = {"registers_b": "b", "addresses_b": "addresses_b", "trans_b": ""}
_WGMMA = {
    "descriptor_a": "descriptor_a", "descriptor_b": "descriptor_b",
    **dict.fromkeys(
        ("swizzle_bytes", "scale_d", "imm_scale_a", "imm_scale_b", "imm_trans_a", "imm_trans_b"), ""
    ),
}  # fmt: skip
_SPARSE = {"e": "e", "selector": ""}
_SCALED = {
    "registers_scale_a": "scale_a", "registers_scale_b": "scale_b",
    **dict.fromkeys(("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b"), ""),
}  # fmt: skip
PASSED = {**_ALL, **_NOT_WGMMA, **_WGMMA, **_SPARSE, **_SCALED}


class Given:
    """The arguments of `find_faults`, checked; all matrices as codes."""

    def __init__(
        self,
        ins: object,
        target: Target,
        matrices: dict[str, object],
        passed: dict[str, object],
        boxes: object = (),
    ) -> None:
        if not isinstance(ins, MatrixInstruction):
            raise OperandError(
                f"the fault finder takes an mma, mma.sp or wgmma; got {quoted(str(ins))}"
            )
        ins.recipe(target)  # raises where the target lacks the instruction
        self.ins, self.target = ins, target
        wgmma, sparse, scaled = traits(ins)
        legal = _ALL | (_WGMMA if wgmma else _NOT_WGMMA)
        legal |= (_SPARSE if sparse else {}) | (_SCALED if scaled else {})
        passed = {name: value for name, value in passed.items() if value is not None}
        for name in passed:
            if name not in legal:
                raise OperandError(
                    f"the fault finder takes no {quoted(name)} with {ins}; it takes "
                    f"{listing(legal, 20)}{hint(name, legal)}"
                )
        self.options = {x: _scalar(x, y) for x, y in passed.items() if not legal[x]}
        self.swizzle = self.options.pop("swizzle_bytes", None)
        self.codes = {x: self._codes(x, y) for x, y in matrices.items() if y is not None}
        given = {legal[x]: as_array(as_words(y), x) for x, y in passed.items() if legal[x]}
        self.steps = self._steps(given)
        self.words = {x: self._words(x, y) for x, y in given.items()}
        self.copies: Copies | None = None
        if held := as_boxes(boxes):
            before = self.words.get("shared", np.zeros(WINDOW, np.uint8))
            self.copies = Copies(before, held)
            self.words["shared"] = filled(before, held)
        #: what ldmatrix loads, and why it cannot, by operand
        self.rows: dict[str, Rows] = {}
        self.unreadable: dict[str, str] = {}
        self._load()
        if self.steps > 1 and ins.c_type != ins.d_type:
            raise OperandError(f"{ins} accumulates over k in no loop: C and D differ in type")

    def _codes(self, name: str, given: object) -> Array:
        ins, scale = self.ins, name.startswith("scale")
        if scale and not ins.is_block_scaled:
            raise OperandError(f"{ins} has no block scales")
        fmt = FORMATS[ins.scale_type if scale else getattr(ins, f"{name}_type")]
        codes = as_codes(name if scale else name.upper(), fmt, given)
        if ins.form.pipe == "quad" and codes.ndim == 2:
            # m8n8k4.f16 computes four: one matrix is meant for all of them.
            return np.broadcast_to(codes, (4, *codes.shape))
        return codes

    def _load(self) -> None:
        """Takes the words of operands from the rows that their addresses lead to."""
        shared = self.words.get("shared")
        readers = [x for x in self.words if x.startswith(("descriptor", "addresses"))]
        if shared is not None and not readers:
            how = (
                "descriptor_b=" if self.ins.is_wgmma else "addresses_a= or addresses_b= (ldmatrix)"
            )
            raise OperandError(f"shared= and boxes= are read through {how}: that is missing")
        if not self.ins.is_wgmma:
            self.words.pop("shared", None)
        for name in "ab":
            trans = bool(self.options.pop(f"trans_{name}", False))
            addresses = self.words.pop(f"addresses_{name}", None)
            if addresses is None:
                continue
            if shared is None:
                raise OperandError(f"addresses_{name}= lead into shared memory: shared= is missing")
            if name in self.words:
                raise OperandError(f"registers_{name}= are what addresses_{name}= load: give one")
            self.rows[name] = Rows(shared, addresses, trans)
            fragment = self.ins.fragment(name)
            try:
                self.words[name] = load_rows(fragment, self.rows[name])
            except UndefinedError as error:
                self.unreadable[name] = f"{name.upper()}: {error}"
                self.words[name] = fragment.zeros(self.steps)

    # --- shapes ---

    def _steps(self, words: dict[str, Array]) -> int:
        """K / k, from what was given; raises OperandError for a matrix of another shape."""
        ins, found = self.ins, {}
        dims = 3 if ins.form.pipe == "quad" else 2
        units = {"a": (-1, ins.k), "b": (-2, ins.k), "scale_a": (-1, ins.scale_chunks),
                 "scale_b": (-2, ins.scale_chunks)}  # fmt: skip
        for name, (axis, unit) in units.items():
            if name not in self.codes:
                continue
            shape, fixed = self.codes[name].shape, ins.m if axis == -1 else ins.n
            right = len(shape) == dims and shape[-3 - axis] == fixed
            if not right or not shape[axis] or shape[axis] % unit:
                sides = (f"{fixed}", f"{unit} (or a multiple)")
                want = ", ".join(sides if axis == -1 else sides[::-1])
                extra = " with its zeros (the full matrix)" if ins.is_sparse and name == "a" else ""
                raise OperandError(
                    f"{name.upper() if len(name) == 1 else name} of {ins} is ({want}){extra}; "
                    f"got {shape}"
                )
            found[name] = shape[axis] // unit
        for name, given in words.items():
            axes = _dims(name)
            if axes is not None and given.ndim == axes + 1:
                found[name] = len(given)
        counts = set(found.values())
        if len(counts) > 1:
            shown = ", ".join(f"{x} {n}" for x, n in found.items())
            raise OperandError(f"the operands differ in k: steps of k are {shown}")
        return counts.pop() if counts else 1

    def _words(self, name: str, array: Array) -> Array:
        """Words with an axis of steps, as `RecordedKernel` has them."""
        dims, lanes = _dims(name), self.ins.lanes
        if name == "shared":
            if array.dtype != np.uint8 or array.ndim != 1:
                raise OperandError(f"shared is uint8 (bytes,); got {array.dtype} {array.shape}")
            return array
        if name.startswith("descriptor"):
            if array.dtype.kind not in "iu":
                raise OperandError(f"{name} is a 64-bit word; got {array.dtype}")
            array = array.astype(np.uint64)
        elif name.startswith("addresses"):
            if array.dtype.kind not in "iu" or array.shape[-1:] != (lanes,):
                raise OperandError(
                    f"{name} are integers, one of each lane, ({lanes},); got {array.dtype} "
                    f"{array.shape}"
                )
            array = array.astype(np.int64)
        elif name in ONE_WORD:
            if array.dtype.itemsize != 4 or array.dtype.kind not in "iu":
                raise OperandError(f"{name} is one 32-bit word per lane; got {array.dtype}")
            array = np.ascontiguousarray(array).view(np.uint32)
            array = array[..., 0] if array.shape[-1:] == (1,) else array
            if array.shape[-1:] != (lanes,):
                raise OperandError(f"{name} is one word per lane, ({lanes},); got {array.shape}")
        else:
            fragment = self.ins.fragment(name)
            if array.dtype.itemsize * 8 == fragment.word_bits and array.dtype.kind in "iuf":
                array = np.ascontiguousarray(array).view(f"u{fragment.word_bits // 8}")
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

    def right(self) -> RecordedKernel:
        """Operands of a right kernel: from matrices, and from words where there is no matrix."""
        ins, codes, fragment = self.ins, dict(self.codes), self.ins.fragment("c")
        words: dict[str, Array] = {}
        if "c" in self.words and "c" not in codes:
            words["c"] = self.words["c"]
        else:
            shape = fragment.lane_map.shape if fragment.groups > 1 else fragment.shape
            zeros = np.zeros(shape, code_type(fragment.fmt.bits))
            words["c"] = fragment.scatter(codes.get("c", zeros))
        if ins.is_sparse:
            codes = self._compressed(codes, words)
        in_memory = []
        for name in "ab":
            missing = name not in self.words and f"descriptor_{name}" not in self.words
            if name not in codes and missing:
                registers = "" if ins.is_wgmma and name == "b" else f" or registers_{name}="
                raise OperandError(f"{name.upper()} is missing: the matrix {name}={registers}")
            if name not in codes and name in self.words:
                words[name] = self.words[name]
            elif name in codes and ins.is_wgmma and (name == "b" or "a" not in self.words):
                in_memory.append(name)
            elif name in codes:
                words[name] = ins.fragment(name).scatter(split_k(name, codes[name], self.steps))
        for name in _SCALES if ins.is_block_scaled else ():
            words[name] = self._scales(name)
        if not ins.is_wgmma:
            return RecordedKernel(ins, self.target, words, self.options)
        return self._with_tiles(words, {name: codes[name] for name in in_memory})

    def passed(self, right: RecordedKernel) -> RecordedKernel:
        """The right kernel, with all that the user's kernel passed in its place."""
        words = dict(right.words)
        for one, other in (("a", "descriptor_a"), ("descriptor_a", "a")):
            if one in self.words:
                words.pop(other, None)
        words |= self.words
        if (memory := self.words.get("shared")) is not None and self._made(right):
            # Behind what the user has lie the tiles that were made.
            words["shared"] = right.words["shared"].copy()
            words["shared"][: len(memory)] = memory
        return RecordedKernel(
            self.ins, self.target, words, self.options, rows=self.rows, copies=self.copies
        )

    def _made(self, right: RecordedKernel) -> list[str]:
        """Operands in shared memory of which the user gave no descriptor."""
        return [
            x
            for x in "ab"
            if f"descriptor_{x}" in right.words.keys() - self.words.keys() and x not in self.words
        ]

    def _compressed(self, codes: dict[str, Array], words: dict[str, Array]) -> dict[str, Array]:
        """A full A to stored elements and metadata; the user's own where they mean the same."""
        check_selector(self.ins, self.options.get("selector", 0))
        mine = self.words.get("e")
        if "a" not in codes:
            if mine is None:
                raise OperandError("e= (metadata words) is missing beside registers_a=")
            words["e"] = mine
            return codes
        tiles = split_k("a", codes["a"], self.steps)
        if mine is not None and "a" in self.words:
            # The zeros of A may be stored in any way.
            parts = self.ins.fragment("a").gather(self.words["a"])
            try:
                full = decompress(self.ins, parts, mine, self.options.get("selector", 0))
            except (UndefinedError, OperandError):
                full = None
            if full is not None and (full == tiles).all():
                words["e"] = mine
                return codes | {"a": np.concatenate(list(parts), -1)}
        both = [metadata(self.ins, tile) for tile in tiles]
        # Lanes that the selector does not read hold what the user's hold, or nothing.
        words["e"] = scatter(self.ins, "e", np.stack([x for _, x in both]), self.options, mine)
        return codes | {"a": np.concatenate([x for x, _ in both], -1)}

    def _scales(self, name: str) -> Array:
        given = self.words.get(name)
        if name not in self.codes:
            if given is None:
                raise OperandError(f"{name}= or registers_{name}= is missing")
            return given
        blank = np.zeros((self.steps, self.ins.lanes), np.uint32) if given is None else given
        gather(self.ins, name, blank, self.options)  # checks the ids
        parts = split_k(name, self.codes[name], self.steps)
        return scatter(self.ins, name, parts, self.options, blank)

    def _with_tiles(self, words: dict[str, Array], tiles: dict[str, Array]) -> RecordedKernel:
        """The tiles of wgmma: in the user's memory, or in one made for them."""
        own = [x for x in ("descriptor_a", "descriptor_b") if x in self.words]
        memory = self.words.get("shared")
        if own and memory is None:
            raise OperandError(f"{own[0]} leads into shared memory: shared= is missing")
        words["shared"] = np.zeros(WINDOW, np.uint8) if memory is None or tiles else memory.copy()
        if memory is not None and tiles:
            words["shared"][: len(memory)] = memory[:WINDOW]
        words |= {x: self.words[x] for x in own if x != "descriptor_a" or "a" not in words}
        for name in tiles:
            words[f"descriptor_{name}"] = self._descriptors(name)
        kernel = RecordedKernel(self.ins, self.target, words, self.options)
        for name, codes in tiles.items():
            kernel = kernel.holding(name, codes)
        return kernel

    def _descriptors(self, name: str) -> Array:
        """Descriptors of a canonical tile of all of k, one for each step."""
        ins = self.ins
        rows, k, _, major = tile_in_memory(ins, name, self.options)
        fmt = FORMATS[ins.a_type if name == "a" else ins.b_type]
        tile = TileShape.of(rows, k * self.steps, fmt, major)
        swizzle = self.swizzle
        if swizzle is None:
            swizzle = next((x for x in (128, 64, 32) if tile.line_bytes % x == 0), 0)
        start = 1024 if name == "a" else WINDOW // 2
        memory = self.words.get("shared")
        if memory is not None and f"descriptor_{name}" not in self.words:
            start = -(-len(memory) // 1024) * 1024  # behind all that the user has
            if start + tile.size > WINDOW:
                raise OperandError(
                    f"shared= has {len(memory)} bytes and no room for {name.upper()} behind them: "
                    f"descriptor_{name}= is missing"
                )
        placed = Descriptor.for_tile(
            rows, k * self.steps, fmt, major=major, swizzle_bytes=swizzle, start_address=start
        ).descriptor
        first = placed.addresses(tile)[0]
        steps = first[:: len(first) // self.steps] - first[0]
        return np.array([placed.stepped(int(x)).encode() for x in steps], np.uint64)


def _dims(name: str) -> int | None:
    """Axes of the words of one step."""
    if name in ("c", "shared"):
        return None
    if name.startswith("descriptor"):
        return 0
    return 1 if name in ONE_WORD or name.startswith("addresses") else 2


def _scalar(name: str, given: object) -> int:
    """An immediate; a file has it as an array of no or one dimension."""
    array = as_array(given, name)
    if array.size != 1 or array.dtype.kind not in "iub":
        raise OperandError(f"{name} is one integer; got {shown(given)}")
    number = int(array.reshape(-1)[0])
    return bool(number) if name == "scale_d" else number
