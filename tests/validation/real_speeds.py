"""Speeds of real processes, row by row, for simulations that draw from them: from run folders into real_speeds.json.

    python tests/validation/real_speeds.py RUN...

A row is kept if it has the speeds of LEAST processes: give runs with ten a case or more, such as
`stagebench run tests/validation/under_load.toml --set sampling.processes=20 -o RUN` makes.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.run_folder import RunFolder

FILE = Path(__file__).with_suffix(".json")
LEAST = 8


def kept() -> list[dict[str, Any]]:
    """What FILE holds, as `of_runs` gives it; nothing where there is none."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    return found


def of_runs(runs: Sequence[Path], least: int = LEAST) -> list[dict[str, Any]]:
    """Each run's origin and its rows' speeds, in samples/s in the order of the rounds."""
    return [of_run(RunFolder.open(run), least) for run in runs]


def of_run(folder: RunFolder, least: int) -> dict[str, Any]:
    about, host = folder.about, next(iter(folder.hosts().values()), None)
    origin = {"created": about.created, "plan": about.plan, "command": " ".join(about.command)}
    machine = {"cpu": host and host.machine.cpu, "cores": host and host.cores}
    rates = {row.case.label: row.rates.by_round for row in summarise(folder) if row.rates}
    speeds = {label: [round(found[at], 4) for at in sorted(found)] for label, found in rates.items()}
    many = {label: found for label, found in speeds.items() if len(found) >= least}
    return {**origin, "commit": about.commit, "method": about.method, **machine, "rows": many}


def deviations(runs: Sequence[dict[str, Any]]) -> list[NDArray[np.float64]]:
    """Of each row: logarithms of its speeds less their mean, spread as those of as many draws."""
    rows = [np.log(np.array(speeds)) for run in runs for speeds in run["rows"].values()]
    return [(row - row.mean()) * np.sqrt(row.size / (row.size - 1)) for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    found = of_runs(parser.parse_args().runs)
    if not any(run["rows"] for run in found):
        parser.error(f"no row of these runs has the speeds of {LEAST} processes")
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    for run in found:
        lengths = [len(speeds) for speeds in run["rows"].values()]
        print(f"{run['plan']} of {run['created']}: {len(lengths)} rows of {min(lengths, default=0)} processes or more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
