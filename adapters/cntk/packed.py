"""CNTK's formats of records: its text format (CTF) here, its binary format (CBF) in `binary`.

A sample has two streams: `images`, its values in a row, and `labels`, the number of its class. Rows with a
one, as CNTK's examples have them, would be as wide as the network's outputs, which a data set does not know.

Oldest Python: 3.6.
"""

import os
import shutil
from typing import BinaryIO, Callable, Dict, Iterable, List

from adapters.cntk import binary
from suite.worker.records import Record


def name_in(folder: str, form: str) -> str:
    """A part's file, or the joined one."""
    return os.path.join(folder, "records." + form)


def write(form: str, samples: Iterable[Record], folder: str) -> None:
    """One part; without samples no file, for nothing tells how wide they would be."""
    path = name_in(folder, form)
    with open(path, "wb") as stream:
        written = WRITERS[form](samples, stream)
    if not written:
        os.remove(path)


def join(form: str, parts: List[str], folder: str) -> None:
    """One file of all parts, for neither deserializer takes several; a single part is linked, not copied."""
    paths = [path for path in (name_in(part, form) for part in parts) if os.path.exists(path)]
    joined = name_in(folder, form)
    if len(paths) > 1:
        with open(joined, "wb") as stream:
            JOINERS[form](paths, stream)
    elif paths:
        try:
            os.link(paths[0], joined)
        except OSError:  # a file system without links
            shutil.copyfile(paths[0], joined)


def write_text(samples: Iterable[Record], stream: BinaryIO) -> int:
    """A line a sample, "|images 0.5 -1 ... |labels 3"; returns their number. Nine digits keep every float32."""
    written = 0
    for sample in samples:
        values = " ".join(["%.9g" % value for value in sample.image.ravel().tolist()])
        stream.write(("|images %s |labels %d\n" % (values, sample.label)).encode("ascii"))
        written += 1
    return written


def join_text(paths: List[str], stream: BinaryIO) -> None:
    """One behind the other."""
    for path in paths:
        with open(path, "rb") as part:
            shutil.copyfileobj(part, stream, 1 << 20)


WRITERS: Dict[str, Callable[[Iterable[Record], BinaryIO], int]] = {"ctf": write_text, "cbf": binary.write}
JOINERS: Dict[str, Callable[[List[str], BinaryIO], None]] = {"ctf": join_text, "cbf": binary.join}
