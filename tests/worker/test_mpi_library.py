"""The words of real libraries."""

import pytest

from suite.worker.rendezvous import named


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Open MPI v5.0.11, package: Open MPI conda@fv Distribution, ident: 5.0.11\0", "Open MPI v5.0.11"),
        ("MPICH Version:      4.2.3\nMPICH Release date: Thu Sep 26 2024\nMPICH ABI: 16:3:4\n", "MPICH Version: 4.2.3"),
        ("Intel(R) MPI Library 2021.11 for Linux* OS\n", "Intel(R) MPI Library 2021.11 for Linux* OS"),
    ],
)
def test_a_library_is_named_in_one_line(text, name):
    assert named(text) == name
