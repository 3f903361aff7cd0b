"""The search: makes every mistake with a kernel and compares what that does with what was seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from dtypes import Array
from emulator.errors import OperandError
from emulator.tools.faults.inputs import Given
from emulator.tools.faults.kernel import Mistake, RecordedKernel, results
from emulator.tools.faults.location import describe_wrong, rounding
from emulator.tools.faults.report import Direction, Fault, FaultReport
from emulator.tools.faults.variants import CHUNK, Try, pairs_of, probe_of, results_of

#: a near match reproduces at least this part of the wrong elements
_NEAR = 0.5
#: more mistakes than this part do not show: the inputs tell little
_UNTOLD = 0.25
#: columns that a wide wgmma is screened by
_COLUMNS = 16
#: pairs of mistakes tried at most, and multiply-adds that they take together
_MOST_PAIRS, _MOST_WORK = 40_000, 1 << 29
_SUGGESTION = (
    "give every element of A, B and C another value (random numbers do), and every lane its own"
)
_NO_PAIRS = "two mistakes at once were not tried: pairs=True (--pairs) tries them"
_ASK = (
    "D shows how an operand is wrong, not where that happens: {} tell whether it is so in the "
    "lanes or in memory"
)
_BETWEEN = (
    "the operands are right as given, so the mistake lies between them and the instruction: the "
    "operand list, the opcode, an immediate, or how D is read"
)


def search(
    given: Given,
    observed: Array | None,
    repair: bool,
    mistakes: Sequence[Mistake],
    pairs: bool,
    limit: int,
) -> FaultReport:
    """See `find_faults`; `observed` is D, which is what should have come out if `repair`."""
    right = given.right()
    passed = given.passed(right)
    both = [
        name
        for name in ("a", "b", "c", "e", "scale_a", "scale_b")
        if (name in given.words or f"descriptor_{name}" in given.words)
        and ("a" if name == "e" else name) in given.codes
    ]
    if observed is None and not both:
        raise OperandError(
            "nothing to compare: give D (what came out), or the D that is expected, or registers "
            "beside the matrices"
        )
    finder = _Search(given, mistakes, limit)
    for name in both:
        finder.check_operand(name, right, passed)
    if observed is not None and not finder.faults and all(finder.operands.values()):
        base = passed if both or repair or given.words else right
        finder.check_result(base, observed, "repair" if repair else "made", pairs)
    return finder.report()


class _Search:
    """Collects faults and what was compared."""

    def __init__(self, given: Given, mistakes: Sequence[Mistake], limit: int) -> None:
        self.given, self.mistakes, self.limit = given, mistakes, limit
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.compared: list[str] = []
        self.operands: dict[str, bool] = {}
        self.tried = self.invisible = self.untold = self.wrong = self.total = 0
        self.kinds: set[str] = set()
        #: where D is wrong
        self.where: list[str] = []

    def report(self) -> FaultReport:
        faults = sorted(self.faults, key=lambda x: (not x.exact, x.exact or -x.explained))
        what = str(self.given.ins), str(self.given.target), tuple(faults), tuple(self.compared)
        counts = self.wrong, self.total, self.tried, self.invisible, self.untold
        where = tuple(self.where) if self._shows_where() else ()
        rest = tuple(self.notes), len(self.kinds), self.operands, where
        return FaultReport(*what, *counts, *rest)

    def _explained(self) -> bool:
        return any(x.exact for x in self.faults)

    def _shows_where(self) -> bool:
        """Whether to report where D is wrong: nothing explains it, or D itself is misplaced."""
        return not self._explained() or any(x.exact and x.operand == "d" for x in self.faults)

    def _tries(self, kernel: RecordedKernel, among: Collection[str] | None = None) -> Iterator[Try]:
        """All mistakes with a kernel, or those with names `among` some."""
        for mistake in self.mistakes:
            if among is None or mistake.name in among:
                for variant in mistake.variants(kernel):
                    self.kinds.add(mistake.name)
                    yield Try(mistake, variant)

    # --- operands ---

    def check_operand(self, name: str, right: RecordedKernel, passed: RecordedKernel) -> None:
        """Compares what the instruction takes from an operand with the matrix that is meant."""
        meant, found = right.matrix(name), passed.matrix_inside(name)
        unread = self.given.unreadable.get(name)
        wrong = np.ones(meant.shape, bool) if found is None or unread else meant != found
        self.operands[name] = not wrong.any()
        self.compared.append(f"operand {name}")
        self.total += meant.size
        if not wrong.any():
            return
        self.wrong += int(wrong.sum())
        self.notes += [unread] if unread else []
        right = replace(right, suspects={name: wrong})
        passed = replace(passed, suspects={name: wrong}, aims={name: meant})
        faults: list[Fault] = []
        if found is not None and not unread and name in passed.words:
            faults += self._compare(name, right, found, wrong, "made")
        faults += self._compare(name, passed, meant, wrong, "repair")
        rank = {x.name: i for i, x in enumerate(self.mistakes)}
        exact = sorted((x for x in faults if x.exact), key=lambda x: rank[x.mistake])
        near = sorted((x for x in faults if not x.exact), key=lambda x: -x.explained)
        self.faults += [_merged(exact)] if exact else near[: self.limit]
        if not exact and found is not None and not unread:
            self.notes += _elsewhere(name, right, passed)

    def _compare(
        self, name: str, base: RecordedKernel, goal: Array, wrong: Array, direction: Direction
    ) -> list[Fault]:
        """Mistakes made with `base` after which the operand is `goal`."""
        out = []
        for one in self._tries(base):
            changed = one.variant.kernel
            if (changed.ins, changed.target) != (base.ins, base.target):
                continue
            same = changed.options == base.options and not any(
                changed.words.get(x) is not base.words.get(x)
                for x in (name, f"descriptor_{name}", "shared")
            )
            if same or (made := changed.matrix_inside(name)) is None or made.shape != goal.shape:
                continue
            self.tried += 1
            fault = _fault(one, made == goal, wrong, direction)
            if fault.exact or fault.explained >= max(1, _NEAR * wrong.sum()):
                out.append(fault)
        return out

    # --- the result ---

    def check_result(
        self, base: RecordedKernel, observed: Array, direction: Direction, pairs: bool
    ) -> None:
        """Compares the result of every mistake with D."""
        self.compared.append("D")
        right = base.result()
        if right is None:
            base.run()  # raises what execute has to say
        assert right is not None
        wrong = right != observed
        self.wrong, self.total = self.wrong + int(wrong.sum()), self.total + wrong.size
        base, fragment = replace(base, suspects={"d": wrong}), base.ins.fragment("d")
        if direction == "made":  # D is what a kernel has stored
            base = replace(base, aims={"d": observed})
        if wrong.any():
            both = (right, observed) if direction == "repair" else (observed, right)
            self.where = describe_wrong(fragment, *both)
            self.notes += [_BETWEEN] if self.operands else []
        found: list[Try] = []
        near: list[tuple[int, Fault]] = []
        unseen: list[Try] = []
        singles: dict[int, Try] = {}  # one of those with the same result
        for one, result in self._screened(base, right, observed):
            if pairs:
                singles.setdefault(hash(result.tobytes()), one)
            if (result == right).all():
                if one.variant.kernel.target == base.target:
                    unseen.append(one)
            elif wrong.any():
                fault = _fault(one, result == observed, wrong, direction)
                if fault.exact:
                    found.append(one)
                elif fault.explained >= _NEAR * wrong.sum() and fault.equal > (~wrong).sum():
                    near.append((fault.equal, fault))
        probe, rounded = probe_of(base), rounding(fragment.fmt, right, observed)
        self.faults += self._grouped(found, base, probe, wrong, direction)
        if not found:
            near.sort(key=lambda x: -x[0])
            self.faults += [fault for _, fault in near[: self.limit]]
            self.notes += rounded
        self._ask(base)
        self._tell(base, unseen, probe)
        if wrong.any() and not found:
            if pairs:
                # The screening of a wide one has left out some that count beside others.
                for one, whole in results_of(self._tries(base)) if _is_wide(base) else ():
                    if whole is not None:
                        singles.setdefault(hash(whole.tobytes()), one)
                singles.pop(hash(right.tobytes()), None)
                self._check_pairs(base, list(singles.values()), wrong, observed, direction)
            elif not rounded:
                self.notes.append(_NO_PAIRS)

    def _ask(self, base: RecordedKernel) -> None:
        """Notes what to give where D alone does not decide between causes of a wrong operand."""
        known = self.given.words.keys() | self.given.rows.keys()
        wrong = dict.fromkeys(x.operand for x in self.faults)
        for name in "ab" if not wrong and self.wrong else wrong:
            if name not in ("a", "b") or known & {name, f"descriptor_{name}"}:
                continue
            if name in base.words:
                what = f"registers_{name}=, or addresses_{name}= (of ldmatrix) with shared="
            else:
                what = f"shared= with descriptor_{name}= of every step along k"
            self.notes.append(_ASK.format(what))

    def _screened(
        self, base: RecordedKernel, right: Array, observed: Array
    ) -> Iterator[tuple[Try, Array]]:
        """Mistakes and results, of a wide wgmma only those whose first columns are telling."""
        narrow = _is_wide(base)
        tries = list(self._tries(base))
        if narrow:
            first = [x.variant.kernel for x in tries]
            quick = results([x if x.reads else x.narrowed(_COLUMNS) for x in first])
            part = slice(None), slice(_COLUMNS)
            wrong = right[part] != observed[part]
            kept = []
            for one, result in zip(tries, quick, strict=True):
                self.tried += result is not None
                if result is not None and not one.variant.kernel.reads:
                    explained = int(((result == observed[part]) & wrong).sum())
                    if (result != right[part]).any() and explained < _NEAR * wrong.sum():
                        continue
                kept.append(one)
            tries = kept
        for one, full in results_of(tries):
            if full is not None:
                self.tried += not narrow
                yield one, full

    def _grouped(
        self,
        found: list[Try],
        base: RecordedKernel,
        probe: RecordedKernel,
        wrong: Array,
        direction: Direction,
    ) -> list[Fault]:
        """Merges mistakes that no input tells apart into one fault; the first one leads."""
        again = self._again(probe, found)
        groups: dict[object, list[Fault]] = {}
        for one in found:
            result = again.get(one.key)
            same = one.key if result is None else result.tobytes()
            fault = _fault(one, np.ones(wrong.shape, bool), wrong, direction)
            groups.setdefault(same, []).append(fault)
        if len(groups) > 1:
            self.notes.append(
                f"with these inputs {len(groups)} different mistakes give the same D; to tell them "
                f"apart {_SUGGESTION}"
            )
        # Of an operand of equal elements only the likeliest mistake is worth a place of its own.
        constant = {x for x in "abc" if _is_constant(base, x)} if found else set()
        merged: dict[str, list[list[Fault]]] = {}
        for group in groups.values():
            same_operand = merged.setdefault(group[0].operand, [])
            first = same_operand[0][0].mistake if same_operand else group[0].mistake
            if group[0].operand in constant and group[0].mistake != first:
                same_operand[0].extend(group)
            else:
                same_operand.append(group)
        return [_merged(x) for same_operand in merged.values() for x in same_operand][: self.limit]

    def _again(
        self, probe: RecordedKernel, tries: list[Try]
    ) -> dict[tuple[str, str, str], Array | None]:
        """Results of the same mistakes on lane-unique inputs."""
        keys = {x.key for x in tries}
        same = (x for x in self._tries(probe, {name for name, _, _ in keys}) if x.key in keys)
        return {one.key: result for one, result in results_of(same)}

    def _tell(self, base: RecordedKernel, unseen: list[Try], probe: RecordedKernel) -> None:
        """Notes mistakes that these inputs hide and other inputs show."""
        self.invisible = len(unseen)
        if not np.any(base.words["c"]) or not base.options.get("scale_d", True):
            if not self._explained():
                self.notes.append("C is zero: mistakes with the registers of C do not show")
            unseen = [x for x in unseen if x.variant.operand != "c"]
        right, again = probe.result(), self._again(probe, unseen)
        results = [(x, again.get(x.key)) for x in unseen if right is not None]
        hidden = [x for x, result in results if result is not None and (result != right).any()]
        self.untold = len(hidden)
        if len(hidden) > _UNTOLD * max(1, self.tried):
            names = list(dict.fromkeys(x.mistake.name for x in hidden))
            self.notes.append(
                f"the inputs do not tell: {len(hidden)} of {self.tried} mistakes would leave D as "
                f"it is ({', '.join(names[:4])}{', …' if len(names) > 4 else ''}); {_SUGGESTION}"
            )

    # --- two at once ---

    def _check_pairs(
        self,
        base: RecordedKernel,
        singles: list[Try],
        wrong: Array,
        observed: Array,
        direction: Direction,
    ) -> None:
        """Tries two mistakes in different operands."""
        most = min(_MOST_PAIRS, max(CHUNK, _MOST_WORK // base.work))
        every = pairs_of(base, singles)
        found, since, count = [], 0, 0
        for one, result in results_of(islice(every, most)):
            count += 1
            if result is not None and (result == observed).all():
                found.append(_fault(one, result == observed, wrong, direction))
            # The likelier pairs come first: what is found much later is the same in other words.
            since += bool(found)
            if len(found) == self.limit or since > CHUNK:
                break
        self.tried += count
        if count == most and next(every, None) is not None:
            why = "" if most == _MOST_PAIRS else f": K is long, {base.work} multiply-adds each"
            self.notes.append(f"of the pairs of mistakes only the first {most} were tried{why}")
        self.faults = found or self.faults


def _is_wide(kernel: RecordedKernel) -> bool:
    return kernel.ins.is_wgmma and kernel.ins.n > 4 * _COLUMNS


def _is_constant(kernel: RecordedKernel, name: str) -> bool:
    codes = kernel.matrix_inside(name)
    return codes is not None and bool((codes == codes.reshape(-1)[0]).all())


def _elsewhere(name: str, right: RecordedKernel, passed: RecordedKernel) -> list[str]:
    """The first elements that lie elsewhere, as far as their values tell."""
    if name not in ("a", "b", "c") or name not in passed.words:
        return []
    fragment = right.ins.fragment(name)
    if fragment.groups > 1:
        return []
    first = slice(None) if name == "c" else 0
    meant, found = (fragment.gather(x.words[name][first]) for x in (right, passed))
    out: list[str] = []
    for row, col in np.argwhere(meant != found):
        places = np.argwhere(meant == found[row, col])
        if len(places) == 1 and len(out) < 3:
            lane = fragment.lane(int(row), int(col))
            held = f"{name.upper()}({places[0][0]}, {places[0][1]})"
            out.append(
                f"lane {lane.lane}, {name}{lane.register}, bits {lane.low_bit + lane.bits - 1}:"
                f"{lane.low_bit} hold {held}, where {name.upper()}({row}, {col}) belongs"
            )
    return out


def _fault(one: Try, equal: Array, wrong: Array, direction: Direction) -> Fault:
    """A mistake after which the elements `equal` are as observed."""
    name, operand, detail = one.key
    why = one.mistake.explain(operand)
    return Fault.of(name, operand, detail, why, equal, wrong, direction)


def _merged(faults: list[Fault]) -> Fault:
    """The first, with the others as other words for it."""
    others = dict.fromkeys(x.detail for x in faults[1:])
    return replace(faults[0], same_as=tuple(x for x in others if x != faults[0].detail))
