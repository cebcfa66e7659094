"""What a host says of itself."""

import os

import pytest

from suite.worker.machine import cpu_quota


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
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_text(text)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups + "\n")
    assert cpu_quota(str(tmp_path) + "/") == quota


def test_a_system_without_control_groups_has_no_quota(tmp_path):
    assert cpu_quota(str(tmp_path) + "/") is None
