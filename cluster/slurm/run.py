"""Run as a script: represent a Slurm job among an attempt's processes.

    python run.py SCRIPT NAME SECONDS
    python run.py NAME                   # cancel the job of that name: the one that followed it was killed

See `cluster.slurm.follow`. Started without the suite on its path, whatever variables there are.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cluster.slurm.follow import main
from cluster.slurm.job import cancel_named

if __name__ == "__main__":
    if len(sys.argv) == 2:
        cancel_named(sys.argv[1])
        sys.exit()
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
