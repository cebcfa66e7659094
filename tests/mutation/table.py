"""The table of mutants that `mutmut run` has left in mutants/: by file, how many the tests killed.

    python tests/mutation/table.py --least 85
    mutmut run $(python tests/mutation/table.py --sample 150)       # of each folder, where all of them take too long

Exit code 1 where fewer than so many of a hundred were killed. `mutmut show NAME` prints one that survived.
"""

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Exit codes of the tests, as mutmut keeps them; any other: they failed or ran out of time, and the mutant is dead.
SURVIVED, UNTESTED, NOT_RUN = 0, 33, None


def outcomes(meta: Path) -> Counter[str]:
    """Of one file's mutants: killed, survived, without a test."""
    codes = json.loads(meta.read_text())["exit_code_by_key"].values()
    words = {SURVIVED: "survived", UNTESTED: "untested", NOT_RUN: "not run"}
    return Counter(words.get(code, "killed") for code in codes)


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
    rows = ["| file | mutants | killed | survived | untested |", "|---|---|---|---|---|"]
    for meta in metas:
        found = outcomes(meta)
        if not found:
            continue
        whole += found
        name = str(meta.relative_to(asked.mutants)).removesuffix(".meta")
        cells = (name, found.total(), found["killed"], found["survived"], found["untested"])
        rows.append(f"| {' | '.join(map(str, cells))} |")
    ran = whole.total() - whole["not run"]
    share = 100.0 * whole["killed"] / max(1, ran)
    sys.stdout.write("\n".join(rows) + f"\n\n{whole['killed']} of {ran} mutants killed: {share:.1f} %\n")
    if whole["not run"]:
        sys.stdout.write(f"{whole['not run']} were not run; `mutmut run` goes on\n")
    return int(share < asked.least or bool(whole["not run"]))


if __name__ == "__main__":
    sys.exit(main())
