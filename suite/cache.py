"""Where things live that can always be made again: oracles, proofs, data sets."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`$STAGEBENCH_CACHE/NAME`, else `$XDG_CACHE_HOME/stagebench/NAME`, else under ~/.cache; made when needed."""
    base = os.environ.get("STAGEBENCH_CACHE")
    root = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stagebench"
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
