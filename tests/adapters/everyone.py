"""Run each adapter's tests by the Python of its own environment: python everyone.py TOX_FOLDER [pytest's arguments].

An adapter whose environment is not there, or lacks something, is named and left out.
"""

import subprocess
import sys
from pathlib import Path

from inside import tokens_and_variables

HERE = Path(__file__).resolve().parent
NOTHING_SELECTED = 5  # pytest's exit code, as with -k for another adapter


def main():
    folder, arguments = sys.argv[1], sys.argv[2:]
    failed = []
    for tests in sorted(each for each in HERE.iterdir() if list(each.glob("test_*.py"))):
        if tests.name == "reference":
            continue  # it needs no framework: the core's own environments run its tests
        python, variables, lacking = tokens_and_variables(folder, tests.name)
        sys.stdout.write(f"{tests.name}: left out: {lacking}\n" if lacking else f"{tests.name}:\n")
        sys.stdout.flush()
        if lacking:
            continue
        done = subprocess.run([str(python), "-m", "pytest", str(tests), *arguments], env=variables, check=False)
        if done.returncode not in (0, NOTHING_SELECTED):
            failed.append(tests.name)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all that are here passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
