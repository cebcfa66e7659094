"""Start a benchmark's ranks by the Open MPI beside its interpreter, told what the controller would tell it."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(hosts: list[str], names: list[str]) -> list[str]:
    """mpiexec and its options for one rank on every host; the program follows. `names`: variables for every rank."""
    from stagebench.cluster.dialects import DIALECTS, filled

    dialect = DIALECTS[0]
    tokens = [str(Path(sys.executable).with_name("mpiexec"))]
    tokens += filled(dialect.group, ranks=len(hosts), per_node=1)
    tokens += filled(dialect.on_hosts, hosts=",".join(f"{host}:1" for host in hosts))
    tokens += filled(dialect.agent, agent=os.environ["STAGEBENCH_LAUNCH_AGENT"])
    for name in names:
        tokens += filled(dialect.variable, name=name)
    return tokens


def variables(hosts: list[str]) -> dict[str, str]:
    """What the controller would give every rank."""
    from stagebench.adapters.open_mpi import GIVE_WAY
    from stagebench.cluster.dialects import DIALECTS, knobs
    from stagebench.cluster.nodes import meeting_address
    from stagebench.suite.contracts.case import Placement

    placement = Placement(nodes=len(hosts), hosts=tuple(hosts), launcher="mpiexec")
    return {
        **GIVE_WAY,
        **knobs(DIALECTS[0], placement),
        **DIALECTS[0].numbers.environ,
        "MASTER_ADDR": meeting_address(placement),
        "MASTER_PORT": "29533",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }


def environ(given: dict[str, str]) -> dict[str, str]:
    """For mpiexec, which hands some of it on."""
    from stagebench.cluster.dialects import AS_ROOT

    return {**os.environ, **AS_ROOT, **given}
