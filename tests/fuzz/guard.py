"""What every damaged case is held to, and the loop that runs many of them."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager

import numpy as np

from emulator import EmulatorError

#: characters that a message may have; seconds that a case may take
LONGEST, SLOW = 4096, 60


class Hang(BaseException):
    """A case that takes too long; no ``except Exception`` holds it up."""


def attempt(call, *legal):
    """The answer of a call, or the error that it may raise: an EmulatorError with a short message,
    or one of `legal`. Anything else, warnings too, goes on to the caller."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return call()
        except (EmulatorError, *legal) as error:
            assert len(str(error)) <= LONGEST, str(error)[:300]
            return error


@contextmanager
def limited(seconds=SLOW):
    """Raises Hang after some seconds, where the system has alarms."""

    def stop(number, frame):
        raise Hang(f"nothing after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def unchanged(*arrays):
    """No array has other bytes at the end; what is no array does not matter."""
    arrays = [x for x in arrays if isinstance(x, np.ndarray) and not x.dtype.hasobject]
    before = [x.tobytes() for x in arrays]
    yield
    for array, held in zip(arrays, before, strict=True):
        assert array.tobytes() == held, "an array of the caller has changed"


def run(case, seeds):
    """Runs ``case(rng)`` for each seed; how often each answer came. It returns a word.

    The first failure goes on to the caller, with its seed in a note.
    """
    counts = Counter()
    for seed in seeds:
        with noted(seed), limited():
            counts[case(random.Random(seed))] += 1
    return counts


@contextmanager
def noted(seed):
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def main(case):
    """The command line of a fuzzer: how many cases, from which seed on. Failures are all listed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    words = parser.parse_args()
    counts, kinds, started = Counter(), Counter(), time.perf_counter()
    for seed in range(words.first, words.first + words.count):
        try:
            counts += run(case, [seed])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} {last.filename.rpartition('/')[2]}:{last.lineno}"
            kinds[kind] += 1
            if kinds[kind] <= 2:
                traceback.print_exc()
                sys.stderr.flush()
    seconds = time.perf_counter() - started
    print(f"{words.count:,} cases in {seconds:.0f} s: {dict(counts)}; failed: {dict(kinds)}")
    return int(bool(kinds))
