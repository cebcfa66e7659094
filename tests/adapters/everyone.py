"""Run each adapter's tests by the Python of its own environment.

    python everyone.py [--need pytorch,jax] TOX_FOLDER [pytest's arguments]

An adapter whose environment is not there, or lacks something, is named and left out; where it is one of those that are
needed, that is a failure.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from inside import adapters, tokens_and_variables

HERE = Path(__file__).resolve().parent
NOTHING_SELECTED = 5  # pytest's exit code, as with -k for another adapter


def asked():
    """(TOX_FOLDER, pytest's arguments, the adapters that are needed, all adapters with tests: name and folder)."""
    # `reference` needs no framework: the core's own environments run its tests.
    tested = {test.parent.name for test in HERE.glob("*/test_*.py")} - {"reference"}
    names = {name: place for name, (_, place) in sorted(adapters().items()) if place in tested}
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--need", default="", metavar="a,b", help="adapters that may not be left out")
    parser.add_argument("folder", metavar="TOX_FOLDER")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    found = parser.parse_args()
    needed = {name.strip() for name in found.need.split(",") if name.strip()}
    unknown = sorted(needed - set(names))
    if unknown:
        parser.error(f"--need names {', '.join(unknown)}; adapters with tests are {', '.join(names)}")
    return found.folder, found.arguments, needed, names


def main():
    folder, arguments, needed, names = asked()
    failed = []
    for name, place in names.items():
        python, variables, lacking = tokens_and_variables(folder, name)
        if lacking:
            sys.stdout.write(f"{name}: {'needed and not here' if name in needed else 'left out'}: {lacking}\n")
            failed += [name] if name in needed else []
            continue
        sys.stdout.write(f"{name}:\n")
        sys.stdout.flush()
        tests = str(HERE / place)
        done = subprocess.run([str(python), "-m", "pytest", tests, *arguments], env=variables, check=False)
        if done.returncode not in (0, NOTHING_SELECTED):
            failed.append(name)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all that are here passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
