"""What a host says of itself."""

import os

import pytest

from stagebench.suite.worker.machine import HostMemory, cpu_quota, memory


def host(folder, groups, files):
    """The root of a host whose control groups have these files."""
    for name, text in files.items():
        path = folder / "sys/fs/cgroup" / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_text(text)
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(groups + "\n")
    (folder / "proc/meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 5000 kB\n")
    return str(folder) + "/"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/", {}, None),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),  # a container's own group
        ("0::/pod/job", {"pod/cpu.max": "400000 100000", "pod/job/cpu.max": "max 100000"}, 4.0),
        ("0::/pod/job", {"pod/cpu.max": "400000 100000", "pod/job/cpu.max": "50000 100000"}, 0.5),
        ("3:cpu,cpuacct:/job", {"cpu/job/cpu.cfs_quota_us": "25000", "cpu/job/cpu.cfs_period_us": "100000"}, 0.25),
        ("3:cpu,cpuacct:/docker/x", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ("3:cpu:/job", {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, None),
        ("5:memory:/job\n0::/", {"job/cpu.max": "1 2"}, None),
    ],
)
def test_the_least_quota_of_all_control_groups_counts(tmp_path, groups, files, quota):
    assert cpu_quota(host(tmp_path, groups, files)) == quota
    assert cpu_quota(str(tmp_path / "without") + "/") is None


# A container's own group: what files of the page cache take can be had.
CONTAINER = {"memory.max": "4096000", "memory.current": "3072000", "memory.stat": "inactive_file 1024000"}
FULL = {"memory/job/memory.limit_in_bytes": "1024", "memory/job/memory.usage_in_bytes": "4096"}


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/", {}, (8000, 5000)),
        ("0::/", {"memory.max": "max\n", "memory.current": "99\n"}, (8000, 5000)),
        ("0::/", CONTAINER, (4000, 2000)),
        ("0::/pod/job", {"pod/memory.max": "2048000", "pod/job/memory.max": "max"}, (2000, 2000)),
        ("0::/", {"memory.max": "7168000", "memory.current": "0"}, (7000, 5000)),
        ("4:memory:/job", FULL, (1, 0)),
        ("4:memory:/docker/x", {"memory/memory.limit_in_bytes": "1024000"}, (1000, 1000)),
        ("4:memory:/", {"memory/memory.limit_in_bytes": "9223372036854771712"}, (8000, 5000)),
    ],
)
def test_the_memory_of_a_control_group_is_the_machine_s(tmp_path, groups, files, found):
    assert memory(host(tmp_path, groups, files)) == HostMemory(*(kib * 1024 for kib in found))
