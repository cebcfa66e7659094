"""What a job printed, and how its end is put into words. Standard library only."""

import os
import sys

from cluster.slurm.job import Facts

FAILED = "stagebench: "  # begins what the job's script prints of a sidecar that failed
RANK = "srun: error: "  # begins what srun prints of a rank that failed
LAST = 65536  # bytes of the job's output that are passed on


def sentence(job: str, known: Facts) -> str:
    """What became of a job, in Slurm's words."""
    limit = f" after its {known.limit}" if known.state == "TIMEOUT" else ""
    nodes = f" on {known.nodes}" if known.nodes else ""
    return f"Slurm job {job}{nodes} ended as {known.state}{limit} (reason {known.reason}, exit code {known.code})"


def sidecar() -> str:
    """What the script printed of a sidecar that failed before any rank did; "" when none did."""
    first = next((line for line in printed().splitlines() if line.startswith((FAILED, RANK))), "")
    return first.removeprefix(FAILED) if first.startswith(FAILED) else ""


def pass_on() -> None:
    sys.stdout.write(printed())
    sys.stdout.flush()


def printed() -> str:
    try:
        with open("slurm.log", "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""
