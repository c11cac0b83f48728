"""`make fuzz`: drawn calls for as long as is wanted. A seed and a number are a call, so what was found is found again:

python -m tests.hostile.fuzz --seconds 60 --seed 7
python -m tests.hostile.fuzz --seed 7 --case 1234
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from itertools import count
from random import Random
from typing import TextIO

from tests.hostile.drawn import Drawn, draw
from tests.hostile.forked import lines_of
from tests.hostile.judged import wrong_with

#: For one call, its building of a kernel included.
SECONDS, BYTES = 120, 3 << 30
#: Bound calls are kept: a process for so many, and then the next.
CALLS_PER_PROCESS = 2000


def case(seed: int, number: int) -> Drawn:
    return draw(Random(f"{seed}.{number}"))


def judge(seed: int, first: int, until: float, out: TextIO) -> None:
    for number in count(first):
        if time.monotonic() > until or number == first + CALLS_PER_PROCESS:
            return
        print(f"begin {number}", file=out)
        call = case(seed, number)
        for wrong in wrong_with(call):
            print(f"{call}: {wrong}".replace("\n", " "), file=out)


def run(seed: int, seconds: float) -> int:
    """The number of findings, which are printed."""
    print(f"seed {seed}, {seconds:.0f} s", flush=True)
    found, done, until = 0, 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for line in lines_of(lambda out, first=done: judge(seed, first, until, out), SECONDS, BYTES):  # type: ignore[misc]
            if line.startswith("begin "):
                done = int(line.split()[1]) + 1
            else:
                found += 1
                print(
                    f"{line:.2000}\n  again: python -m tests.hostile.fuzz --seed {seed} --case {done - 1}", flush=True
                )
    print(f"seed {seed}: {done} calls, {found} findings")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--case", type=int, help="one number, to find again what was found")
    given = parser.parse_args()
    if given.case is None:
        return min(run(given.seed, given.seconds), 1)
    call = case(given.seed, given.case)
    wrong = wrong_with(call)
    print(call, *wrong, sep="\n  ")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
