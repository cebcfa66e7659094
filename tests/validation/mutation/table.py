"""The table of mutants that `mutmut run` has left in mutants/: by file, how many the tests killed.

    python tests/validation/mutation/table.py --least 85
    mutmut run $(python tests/validation/mutation/table.py --sample 150)  # of each folder, if all take too long

Exit code 1 where fewer than so many of a hundred were killed. `mutmut show NAME` prints one that survived.
"""

import argparse
import json
import math
import random
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
# mutmut's exit codes (mutmut.stats): pytest's own where its tests ended, others where they did not. A time-out is
# fifteen times what the tests take. What is not here (a file that cannot be collected, a segmentation fault, an
# interruption) says nothing about the tests.
TIMED_OUT = "timed out"
WORDS = {1: "killed", 0: "survived", 5: "untested", 33: "untested", None: "not run"}
WORDS.update(dict.fromkeys((36, 24, -24, 152, 255), TIMED_OUT))
COLUMNS = ("killed", TIMED_OUT, "survived", "untested", "no verdict")
Z = 1.959964  # of a standard normal variable, two-sided 95 %


def outcomes(meta: Path) -> Counter[str]:
    """Of one file's mutants: how many had which of COLUMNS, or were not run."""
    codes = json.loads(meta.read_text())["exit_code_by_key"].values()
    return Counter(WORDS.get(code, "no verdict") for code in codes)


def wilson(killed: int, ran: int) -> tuple[float, float]:
    """The 95 % interval of a share, in percent (Wilson 1927); 0 to 100 where nothing ran."""
    if not ran:
        return 0.0, 100.0
    share, weight = killed / ran, Z * Z / ran
    middle, half = share + weight / 2, Z * math.sqrt(share * (1 - share) / ran + weight / (4 * ran))
    return 100 * (middle - half) / (1 + weight), 100 * (middle + half) / (1 + weight)


def sampled(metas: list[Path], count: int, seed: int) -> list[str]:
    """So many mutants of each folder, by name."""
    folders: dict[Path, list[str]] = {}
    for meta in metas:
        folders.setdefault(meta.parent, []).extend(json.loads(meta.read_text())["exit_code_by_key"])
    chance = random.Random(seed)
    return [name for names in folders.values() for name in chance.sample(names, min(count, len(names)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--least", type=float, default=85.0, help="percent")
    parser.add_argument("--mutants", type=Path, default=ROOT / "mutants")
    parser.add_argument("--sample", type=int, help="print the names of so many mutants of each folder, and no table")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    metas = sorted(asked.mutants.rglob("*.meta"))
    if asked.sample:
        sys.stdout.write("\n".join(sampled(metas, asked.sample, asked.seed)) + "\n")
        return 0
    whole: Counter[str] = Counter()
    rows = [f"| file | mutants | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    for meta in metas:
        found = outcomes(meta)
        if not found:
            continue
        whole += found
        name = str(meta.relative_to(asked.mutants)).removesuffix(".meta")
        cells = (name, found.total() - found["not run"], *(found[column] for column in COLUMNS))
        rows.append(f"| {' | '.join(map(str, cells))} |")
    ran, dead = whole.total() - whole["not run"], whole["killed"] + whole[TIMED_OUT]
    share, (low, high) = 100.0 * dead / max(1, ran), wilson(dead, ran)
    sys.stdout.write("\n".join(rows))
    sys.stdout.write(f"\n\n{dead} of {ran} mutants killed: {share:.1f} % (95 % interval {low:.1f} to {high:.1f} %)\n")
    if whole[TIMED_OUT]:
        sys.stdout.write(f"{whole[TIMED_OUT]} of them timed out; a loaded machine does that, too: `mutmut run NAME`\n")
    if whole["not run"]:
        sys.stdout.write(f"{whole['not run']} were not run; `mutmut run` goes on\n")
    return int(share < asked.least or bool(whole["not run"]))


if __name__ == "__main__":
    sys.exit(main())
