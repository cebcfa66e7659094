"""The MPI library by which ranks meet, as it names itself.

Standard library only.
"""

import ctypes


def loaded(name: str) -> str:
    """Return the name and version of a shared library that this process has loaded, such as "libmpi.so.40"."""
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(name).MPI_Get_library_version(text, ctypes.byref(length))
    return named(text.value.decode())


def named(text: str) -> str:
    """Return name and version, "Open MPI v5.0.11", of a text of MPI_Get_library_version; MPICH sets it in columns."""
    return " ".join(text.rstrip("\0").partition("\n")[0].partition(",")[0].split())
