"""Which cores ranks are bound to, on machines as `lscpu -p` describes them."""

import os

import pytest

from stagebench.suite.worker.binding import Cpu, shares, topology
from tests.support.errors import raising

# util-linux, tests/expected/lscpu: lscpu-x86_64-epyc_7451, lscpu-ppc64-POWER7-64cpu, lscpu-x86_64-64cpu-linux6.2.
EPYC = [Cpu(cpu, cpu % 48, cpu % 48 // 6) for cpu in range(96)]  # 2 sockets of 24 cores in 8 NUMA nodes; 2 threads each
POWER = [Cpu(cpu, cpu // 4 * 4, 0) for cpu in range(64)]  # 16 cores of 4 threads with neighbouring numbers
LAPTOP = [Cpu(cpu, cpu % 4, 0) for cpu in range(8)]
# Two sockets whose cores take turns in the numbering, as Dell's servers number them: node 0 is even, node 1 odd.
IN_TURNS = [Cpu(cpu, cpu, cpu % 2) for cpu in range(16)]


def pairs(*cores):
    """Cores of EPYC with both hardware threads."""
    return sorted([*cores, *(core + 48 for core in cores)])


@pytest.mark.parametrize(
    ("cpus", "ranks", "threads", "beside", "expected"),
    [
        # whole cores, in one node each, over as many nodes as there are
        (EPYC, 2, 6, 0, [pairs(*range(6)), pairs(*range(6, 12))]),
        (EPYC, 8, 6, 2, [pairs(*range(6 * node, 6 * node + 6)) for node in range(8)]),
        (IN_TURNS, 2, 2, 0, [[0, 2], [1, 3]]),
        (IN_TURNS, 4, 2, 0, [[0, 2], [4, 6], [1, 3], [5, 7]]),
        (IN_TURNS, 1, 10, 0, [[0, 1, 2, 3, 4, 6, 8, 10, 12, 14]]),  # fits no node
        # readers and communication beside the training, as long as the rank stays in its node
        (EPYC, 2, 4, 2, [pairs(*range(6)), pairs(*range(6, 12))]),
        (EPYC, 2, 5, 3, [pairs(*range(6)), pairs(*range(6, 12))]),
        (LAPTOP, 2, 1, 3, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        # too few cores: a core's threads together, then whatever there is
        (LAPTOP, 2, 4, 1, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        (LAPTOP, 2, 3, 0, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        (POWER, 16, 2, 0, [[core * 4, core * 4 + 1, core * 4 + 2, core * 4 + 3] for core in range(16)]),
        (LAPTOP[:3] + LAPTOP[4:6], 1, 5, 0, [[0, 1, 2, 4, 5]]),
        (LAPTOP, 8, 1, 0, [[0], [4], [1], [5], [2], [6], [3], [7]]),
    ],
)
def test_a_rank_has_whole_cores_of_one_node_as_far_as_they_go(cpus, ranks, threads, beside, expected):
    assert shares(cpus, ranks, threads, beside) == expected
    with raising(ValueError, ranks, len(cpus)):
        shares(cpus, ranks, len(cpus) // ranks + 1)


def test_a_machine_is_read_from_the_system_s_own_lists(tmp_path):
    for cpu in (0, 1, 4, 5):
        folder = tmp_path / "cpu" / ("cpu%d" % cpu) / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("%d,%d\n" % (cpu % 4, cpu % 4 + 4))
    for node, cpus in enumerate(("0,4", "1,5-7", "\n")):
        (tmp_path / "node" / ("node%d" % node)).mkdir(parents=True)
        (tmp_path / "node" / ("node%d" % node) / "cpulist").write_text(cpus)
    assert topology([5, 0, 1], str(tmp_path)) == [(0, 0, 0), (1, 1, 1), (5, 1, 1)]
    assert topology([2, 0], str(tmp_path / "nothing")) == [(0, 0, 0), (2, 2, 0)]
    assert [cpu.number for cpu in topology(os.sched_getaffinity(0))] == sorted(os.sched_getaffinity(0))
