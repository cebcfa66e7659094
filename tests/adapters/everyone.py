"""Run each adapter's tests by the Python of its own environment: python everyone.py TOX_FOLDER [pytest's arguments].

An adapter whose environment is not there is named and left out: this machine lacks its Python.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main():
    folder, arguments = Path(sys.argv[1]), sys.argv[2:]
    failed = []
    for tests in sorted(each for each in HERE.iterdir() if list(each.glob("test_*.py"))):
        python = folder / tests.name / "bin" / "python"
        if tests.name == "reference":
            continue  # it needs no framework: the core's own environments run its tests
        if not python.exists():
            sys.stdout.write(f"{tests.name}: no environment in {folder}; left out\n")
            continue
        sys.stdout.write(f"{tests.name}:\n")
        sys.stdout.flush()
        # 5: nothing was selected, as with -k for another adapter
        if subprocess.run([str(python), "-m", "pytest", str(tests), *arguments]).returncode not in (0, 5):
            failed.append(tests.name)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
