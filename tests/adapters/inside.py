"""Run an adapter's own interpreter as the suite would, with the variables that it needs.

python tests/adapters/inside.py .tox cntk -m pytest tests/adapters/cntk
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stagebench.suite.contracts.case import Case

ROOT = Path(__file__).resolve().parents[2]


def adapters():
    """Every adapter of this tree by name, with its folder's name: a plugin may bring several."""
    places = sorted(path.parent.name for path in ROOT.glob("adapters/*/plugin.py"))
    plugins = [(place, importlib.import_module(f"stagebench.adapters.{place}.plugin")) for place in places]
    return {adapter.name: (adapter, place) for place, plugin in plugins for adapter in plugin.stagebench_adapters()}


def tokens_and_variables(folder, name):
    """(interpreter, variables, why it cannot be used or None)."""
    adapter, _ = adapters()[name]
    python = Path(folder) / adapter.environment / "bin" / "python"
    lacking = adapter.missing(python) if python.exists() else f"no {python}: tox run -e {adapter.environment}"
    if lacking:
        return python, {}, lacking
    case = Case(adapter.name, adapter.capabilities.strategies[0].name, "mnist_small", tuning="tuned")
    return python, {**os.environ, **adapter.environ(case, python)}, None


def main():
    folder, name, *arguments = sys.argv[1:]
    python, variables, lacking = tokens_and_variables(folder, name)
    if lacking:
        sys.stdout.write(f"{name}: skipped: {lacking}\n")
        return 0
    return subprocess.call([str(python), *arguments], env=variables)


if __name__ == "__main__":
    sys.exit(main())
