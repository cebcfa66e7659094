"""The libraries of Ubuntu 16.04 that CNTK's image reader is linked with; later systems lack some of them.

As a program, which plugin.py runs before CNTK is started, it prints the remedy if libraries are missing.

Standard library only.
"""

import ctypes
import sys
from typing import List

SETTING = "STAGEBENCH_CNTK_LIBRARIES"  # a folder of the libraries, which plugin.py puts into the loader's path

# library that the reader is linked with -> the release that has it under this name
IMAGE_LIBRARIES = {
    "libjpeg.so.8": "libjpeg-turbo 2.1",
    "libpng12.so.0": "libpng 1.2",
    "libtiff.so.5": "LibTIFF 4.0",
    "libjasper.so.1": "JasPer 1.900.14",
}


def loads(library: str) -> bool:
    """Check that this process's loader finds a library and its dependencies."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing() -> List[str]:
    return [name for name in IMAGE_LIBRARIES if not loads(name)]


def remedy(names: List[str]) -> str:
    """Return the remedy for missing libraries."""
    return (
        "CNTK's image reader is linked with libraries of Ubuntu 16.04, and the loader finds no "
        f"{', '.join(names)}; build {', '.join(IMAGE_LIBRARIES[name] for name in names)} from source "
        f"and name the folder in {SETTING}, or use format = 'files'"
    )


if __name__ == "__main__":
    found = missing()
    sys.stdout.write(remedy(found) if found else "")
