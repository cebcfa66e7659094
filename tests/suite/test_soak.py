"""What the soak calls flat, and what it does not."""

import pytest

from tests.validation.soak import Sample, flat, grown


def course(cpu_s=0.02, bytes_a_case=0, leaked=0):
    """A controller's samples over 100 cases, three a case."""
    counts = [n / 3 for n in range(300)]
    return [Sample(int(n), cpu_s * n, int(80e6 + bytes_a_case * n), 9 + int(leaked * n) + (i % 2)) for i, n in
            enumerate(counts)]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"bytes_a_case": 20_000}, True),  # 2 MB of 80
        ({"bytes_a_case": 150_000}, False),
        ({"cpu_s": 0.2}, False),
        ({"leaked": 0.1}, False),
    ],
)
def test_what_grows_with_the_cases_is_not_flat(change, expected):
    found = grown(course(**change), 100)
    assert flat(found) == expected, found


def test_nor_is_a_summary_that_takes_twice_the_memory():
    found = grown(course(), 100)
    assert flat(found)
    assert not flat({**found, "resident_mb_at_the_end": 161.0})
