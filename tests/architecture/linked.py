"""Make a folder of links in which stagebench is a package, as in a wheel, and run a program there.

    python tests/architecture/linked.py FOLDER [PROGRAM ...]

mypy, import-linter, mutmut and editors take no module for a package.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("adapters", "cluster", "reports", "suite", "workloads")
OTHERS = ("docs", "pyproject.toml", "README.md", "tests", "tox.ini")


def linked(folder: Path, root: Path = ROOT) -> Path:
    """Return the folder, with links to what `root` has of the tree."""
    places = {"stagebench/__init__.py": "stagebench.py", **{f"stagebench/{name}": name for name in PACKAGES}}
    for place, name in {**places, **dict(zip(OTHERS, OTHERS, strict=True))}.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).unlink(missing_ok=True)
        (folder / place).symlink_to(root / name)
    return folder


if __name__ == "__main__":
    folder = linked(Path(sys.argv[1]))
    sys.exit(subprocess.call(sys.argv[2:], cwd=folder) if sys.argv[2:] else 0)
