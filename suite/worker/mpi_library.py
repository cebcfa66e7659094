"""Which MPI library ranks meet by, as it names itself.

Standard library only.
"""

import ctypes


def loaded(name: str) -> str:
    """Of a shared library that this process has loaded already, such as "libmpi.so.40"."""
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(name).MPI_Get_library_version(text, ctypes.byref(length))
    return named(text.value.decode())


def named(text: str) -> str:
    """Name and version, "Open MPI v5.0.11", from what MPI_Get_library_version returns; MPICH sets it in columns."""
    return " ".join(text.rstrip("\0").partition("\n")[0].partition(",")[0].split())
