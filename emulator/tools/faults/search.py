"""The search: makes every mistake with a kernel and compares what that does with what was seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from dtypes import Array
from emulator.errors import EmulatorError, OperandError
from emulator.tools.faults.inputs import Given
from emulator.tools.faults.kernel import Kernel, results
from emulator.tools.faults.location import describe_wrong, rounding
from emulator.tools.faults.pairs import CHUNK, Try, combined_try, diagonals, distinct, results_of
from emulator.tools.faults.probe import probe_of
from emulator.tools.faults.registers import Mistake, Variant
from emulator.tools.faults.report import Fault, Report
from emulator.tools.faults.swaps import suspecting

#: a near match reproduces at least this part of the wrong elements
_NEAR = 0.5
#: more mistakes than this part do not show: the inputs tell little
_UNTOLD = 0.25
#: columns that a wide wgmma is screened by
_COLUMNS = 16
#: pairs of mistakes tried at most
_MOST_PAIRS = 40_000
_SUGGESTION = (
    "give every element of A, B and C another value (random numbers do), and every lane its own"
)
_NO_PAIRS = "two mistakes at once were not tried: pairs=True (--pairs) tries them"


#: mistake, operand, detail
_Key = tuple[str, str, str]


def search(
    given: Given,
    observed: Array | None,
    repair: bool,
    mistakes: Sequence[Mistake],
    pairs: bool,
    limit: int,
) -> Report:
    """See `find_faults`; `observed` is D, which is what should have come out if `repair`."""
    right = given.right()
    passed = given.passed(right)
    both = _given_twice(given)
    if observed is None and not both:
        raise OperandError(
            "nothing to compare: give D (what came out), or the D that is expected, or registers "
            "beside the matrices"
        )
    finder = _Finder(given, mistakes, limit)
    for name in both:
        finder.check_operand(name, right, passed)
    if observed is not None and not finder.faults and all(finder.operands.values()):
        finder.check_result(passed if both or repair or given.words else right, observed, repair)
        if finder.result is not None and not any(x.exact for x in finder.faults):
            if pairs:
                finder.check_pairs(passed, observed, repair)
            elif not finder.rounded:
                finder.notes.append(_NO_PAIRS)
    return finder.report()


def _given_twice(given: Given) -> list[str]:
    """Operands of which both the matrix and what was passed are known."""
    names = []
    for name in ("a", "b", "c", "e", "scale_a", "scale_b"):
        words = name in given.words or f"descriptor_{name}" in given.words
        if words and ("a" if name == "e" else name) in given.codes:
            names.append(name)
    return names


class _Finder:
    """Collects faults and what was compared."""

    def __init__(self, given: Given, mistakes: Sequence[Mistake], limit: int) -> None:
        self.given, self.mistakes, self.limit = given, mistakes, limit
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.compared: list[str] = []
        self.operands: dict[str, bool] = {}
        self.tried = self.invisible = self.untold = self.wrong = self.total = 0
        self.kinds: set[str] = set()
        #: the codes of a wrong D, and those that it should have
        self.result: tuple[Array, Array] | None = None
        self.rounded = False

    def report(self) -> Report:
        ins, target = self.given.ins, self.given.target
        faults = sorted(self.faults, key=lambda x: (not x.exact, x.exact or -x.explained))
        where: list[str] = []
        if self.result is not None and not any(x.exact for x in faults):
            where = describe_wrong(ins.fragment("d"), *self.result)
        return Report(
            str(ins), str(target), tuple(faults), tuple(self.compared), self.wrong, self.total,
            self.tried, self.invisible, self.untold, tuple(self.notes), len(self.kinds),
            self.operands, tuple(where),
        )  # fmt: skip

    def _tries(self, kernel: Kernel, among: Collection[str] | None = None) -> Iterator[Try]:
        """All mistakes with a kernel, or those with names `among` some."""
        for mistake in self.mistakes:
            if among is not None and mistake.name not in among:
                continue
            for variant in mistake.variants(kernel):
                self.kinds.add(mistake.name)
                yield Try(mistake, variant)

    # --- operands ---

    def check_operand(self, name: str, right: Kernel, passed: Kernel) -> None:
        """Compares what the instruction takes from an operand with the matrix that is meant."""
        meant, found = right.matrix(name), _matrix(passed, name)
        wrong = np.ones(meant.shape, bool) if found is None else meant != found
        self.operands[name] = not wrong.any()
        self.compared.append(f"operand {name}")
        self.total += meant.size
        if not wrong.any():
            return
        self.wrong += int(wrong.sum())
        right, passed = (suspecting(x, name, wrong) for x in (right, passed))
        faults: list[Fault] = []
        if found is not None and name in passed.words:
            faults += self._compare(name, right, passed, found, wrong)
        faults += self._compare(name, passed, passed, meant, wrong)
        rank = {x.name: i for i, x in enumerate(self.mistakes)}
        exact = sorted((x for x in faults if x.exact), key=lambda x: rank[x.mistake])
        near = sorted((x for x in faults if not x.exact), key=lambda x: -x.explained)
        self.faults += [_merged(exact)] if exact else near[: self.limit]
        if not exact and found is not None:
            self.notes += self._where(name, right, passed)

    def _compare(
        self, name: str, base: Kernel, passed: Kernel, goal: Array, wrong: Array
    ) -> list[Fault]:
        """Mistakes made with `base` after which the operand is `goal`."""
        out = []
        for mistake, variant in self._tries(base):
            if variant.kernel.ins != base.ins or variant.kernel.target != base.target:
                continue
            changed = variant.kernel
            same = changed.options == base.options and not any(
                changed.words.get(x) is not base.words.get(x)
                for x in (name, f"descriptor_{name}", "shared")
            )
            if same or (made := _matrix(changed, name)) is None or made.shape != goal.shape:
                continue
            self.tried += 1
            equal = made == goal
            explained = int((equal & wrong).sum())
            if equal.all() or explained >= max(1, _NEAR * wrong.sum()):
                direction = "repair" if base is passed else "made"
                out.append(_fault(mistake, variant, equal, explained, wrong, direction))
        return out

    def _where(self, name: str, right: Kernel, passed: Kernel) -> list[str]:
        """The first elements that lie elsewhere, as far as their values tell."""
        if name not in ("a", "b", "c") or name not in passed.words:
            return []
        fragment = right.ins.fragment(name)
        if fragment.groups > 1:
            return []
        first = slice(None) if name == "c" else 0
        meant, found = (fragment.gather(x.words[name][first]) for x in (right, passed))
        out = []
        for row, col in np.argwhere(meant != found):
            places = np.argwhere(meant == found[row, col])
            if len(places) != 1:
                continue
            lane = fragment.lane(int(row), int(col))
            held = f"{name.upper()}({places[0][0]}, {places[0][1]})"
            out.append(
                f"lane {lane.lane}, {name}{lane.register}, bits {lane.low_bit + lane.bits - 1}:"
                f"{lane.low_bit} hold {held}, where {name.upper()}({row}, {col}) belongs"
            )
            if len(out) == 3:
                break
        return out

    # --- the result ---

    def check_result(self, base: Kernel, observed: Array, repair: bool) -> None:
        """Compares the result of every mistake with D."""
        self.compared.append("D")
        right = base.result()
        if right is None:
            base.run()  # raises what execute has to say
        assert right is not None
        wrong = right != observed
        self.wrong, self.total = self.wrong + int(wrong.sum()), self.total + wrong.size
        base = suspecting(base, "d", wrong)
        if wrong.any():
            self.result = (right, observed) if repair else (observed, right)
        if wrong.any() and self.operands:
            self.notes.append(
                "the operands are right as given, so the mistake lies between them and the "
                "instruction: the operand list, the opcode, an immediate, or how D is read"
            )
        found: list[tuple[Try, Array]] = []
        near: list[tuple[int, Try, Array]] = []
        unseen: list[Try] = []
        for one, result in self._screened(base, right, observed):
            if (result == right).all():
                if one.variant.kernel.target == base.target:
                    unseen.append(one)
                continue
            if not wrong.any():
                continue
            equal = result == observed
            explained = int((equal & wrong).sum())
            if equal.all():
                found.append((one, equal))
            elif explained >= _NEAR * wrong.sum() and equal.sum() > (~wrong).sum():
                near.append((explained, one, equal))
        near.sort(key=lambda x: -int(x[2].sum()))
        direction = "repair" if repair else "made"
        probe = probe_of(base)
        self.faults += self._grouped(found, base, probe, wrong, direction)
        if not found:
            self.faults += [_fault(x.mistake, x.variant, equal, n, wrong, direction)
                            for n, x, equal in near[: self.limit]]  # fmt: skip
            notes = rounding(base.ins.fragment("d").fmt, right, observed)
            self.notes, self.rounded = self.notes + notes, bool(notes)
        self._tell(base, unseen, probe)

    def _screened(self, base: Kernel, right: Array, observed: Array) -> Iterator[tuple[Try, Array]]:
        """Mistakes and results, of a wide wgmma only those whose first columns are telling."""
        narrow = base.ins.is_wgmma and base.ins.n > 4 * _COLUMNS
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
        found: list[tuple[Try, Array]],
        base: Kernel,
        probe: Kernel,
        wrong: Array,
        direction: str,
    ) -> list[Fault]:
        """One fault for all those that no input tells apart, the first of the table before."""
        if not found:
            return []
        again = self._again(probe, [x for x, _ in found])
        groups: list[tuple[Array | None, list[Fault]]] = []
        for one, equal in found:
            fault = _fault(one.mistake, one.variant, equal, int(wrong.sum()), wrong, direction)
            result = again.get(_key(one))
            for other, group in groups:
                if result is not None and other is not None and (result == other).all():
                    group.append(fault)
                    break
            else:
                groups.append((result, [fault]))
        if len(groups) > 1:
            self.notes.append(
                f"with these inputs {len(groups)} different mistakes give the same D; to tell them "
                f"apart {_SUGGESTION}"
            )
        # Of an operand of equal elements only the likeliest mistake is worth a place of its own.
        constant = {x for x in "abc" if _is_constant(base, x)}
        merged: dict[str, list[list[Fault]]] = {}
        for _, group in groups:
            same = merged.setdefault(group[0].operand, [])
            if same and group[0].operand in constant and group[0].mistake != same[0][0].mistake:
                same[0].extend(group)
            else:
                same.append(group)
        return [_merged(x) for same in merged.values() for x in same][: self.limit]

    def _again(self, probe: Kernel, tries: list[Try]) -> dict[_Key, Array | None]:
        """What the same mistakes do with lane-unique inputs."""
        keys = {_key(x) for x in tries}
        same = (x for x in self._tries(probe, {name for name, _, _ in keys}) if _key(x) in keys)
        return {_key(one): result for one, result in results_of(same)}

    def _tell(self, base: Kernel, unseen: list[Try], probe: Kernel) -> None:
        """Which mistakes these inputs would not show, though others do."""
        self.invisible = len(unseen)
        if not np.any(base.words["c"]) or not base.options.get("scale_d", True):
            if not any(x.exact for x in self.faults):
                self.notes.append("C is zero: mistakes with the registers of C do not show")
            unseen = [x for x in unseen if x.variant.operand != "c"]
        right = probe.result()
        again = self._again(probe, unseen)
        hidden = [
            x for x in unseen
            if right is not None and (result := again.get(_key(x))) is not None
            and (result != right).any()
        ]  # fmt: skip
        self.untold = len(hidden)
        if len(hidden) > _UNTOLD * max(1, self.tried):
            names = list(dict.fromkeys(x.mistake.name for x in hidden))
            self.notes.append(
                f"the inputs do not tell: {len(hidden)} of {self.tried} mistakes would leave D as "
                f"it is ({', '.join(names[:4])}{', …' if len(names) > 4 else ''}); {_SUGGESTION}"
            )

    # --- two at once ---

    def check_pairs(self, base: Kernel, observed: Array, repair: bool) -> None:
        """Tries two mistakes in different operands."""
        right = base.result()
        assert right is not None
        wrong = right != observed
        if not wrong.any():
            return
        base = suspecting(base, "d", wrong)
        tries = distinct(results_of(self._tries(base)), right)
        count = 0
        direction = "repair" if repair else "made"

        def combined() -> Iterator[Try]:
            nonlocal count
            for first, second in diagonals(tries):
                both = combined_try(base, first, second)
                if both is not None:
                    count += 1
                    if count > _MOST_PAIRS:
                        return
                    yield both

        found, since = [], 0
        for one, result in results_of(combined()):
            if result is not None and (result == observed).all():
                found.append(
                    _fault(one.mistake, one.variant, result == observed, int(wrong.sum()), wrong,
                           direction)
                )  # fmt: skip
            # The likelier pairs come first: what is found much later is the same in other words.
            since += bool(found)
            if len(found) == self.limit or since > CHUNK:
                break
        self.tried += min(count, _MOST_PAIRS)
        if count > _MOST_PAIRS:
            self.notes.append(f"of the pairs of mistakes only the first {_MOST_PAIRS} were tried")
        if found:
            self.faults = found[: self.limit]


def _key(one: Try) -> _Key:
    return one.mistake.name, one.variant.operand, one.variant.detail


def _matrix(kernel: Kernel, name: str) -> Array | None:
    try:
        return kernel.matrix(name)
    except EmulatorError:
        return None  # it lies outside of shared memory


def _is_constant(kernel: Kernel, name: str) -> bool:
    codes = _matrix(kernel, name)
    return codes is not None and bool((codes == codes.reshape(-1)[0]).all())


def _fault(
    mistake: Mistake, variant: Variant, equal: Array, explained: int, wrong: Array, direction: str
) -> Fault:
    return Fault(
        mistake.name, variant.operand, variant.detail, mistake.explain(variant.operand),
        int(equal.sum()), equal.size, explained, int(wrong.sum()), (), direction,  # type: ignore[arg-type]
    )  # fmt: skip


def _merged(faults: list[Fault]) -> Fault:
    """The first, with the others as other words for it."""
    others = dict.fromkeys(x.detail for x in faults[1:])
    return replace(faults[0], same_as=tuple(x for x in others if x != faults[0].detail))
