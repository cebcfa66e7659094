"""Run each adapter's tests by the Python of its own environment.

    python everyone.py [--need pytorch,jax] TOX_FOLDER [pytest's arguments]

Three environments at a time; each one's output is told when it is done. An adapter whose environment is not there, or
lacks something, is named and skipped; where it is one of those that are needed, that is a failure.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from inside import adapters, tokens_and_variables

HERE = Path(__file__).resolve().parent
TOGETHER = 3  # most tests compute on one thread, and many wait for ranks, files and limits
COMPILING = ("tensorflow", "jax", "pytorch")  # what their tests run is compiled first: they take the longest
NOTHING_SELECTED = 5  # pytest's exit code, as with -k for another adapter


def asked():
    """(TOX_FOLDER, pytest's arguments, the adapters that are needed, all adapters with tests: name and folder)."""
    # `reference` needs no framework: the core's own environments run its tests.
    tested = {test.parent.name for test in HERE.glob("*/test_*.py")} - {"reference"}
    names = {name: place for name, (_, place) in sorted(adapters().items()) if place in tested}
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--need", default="", metavar="a,b", help="adapters that may not be skipped")
    parser.add_argument("folder", metavar="TOX_FOLDER")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    found = parser.parse_args()
    needed = {name.strip() for name in found.need.split(",") if name.strip()}
    unknown = sorted(needed - set(names))
    if unknown:
        parser.error(f"--need names {', '.join(unknown)}; adapters with tests are {', '.join(names)}")
    return found.folder, found.arguments, needed, names


def run(python, variables, place, arguments):
    """(pytest's exit code, all that it said)."""
    tokens = [str(python), "-m", "pytest", str(HERE / place), *arguments]
    done = subprocess.run(
        tokens,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def main():
    folder, arguments, needed, names = asked()
    failed, running = [], {}
    with ThreadPoolExecutor(TOGETHER) as pool:
        for name, place in sorted(names.items(), key=lambda item: (item[0] not in COMPILING, -lines_of_tests(item[1]))):
            python, variables, lacking = tokens_and_variables(folder, name)
            if lacking:
                say(f"{name}: {'needed and not here' if name in needed else 'skipped'}: {lacking}")
                failed += [name] if name in needed else []
            else:
                running[pool.submit(run, python, variables, place, arguments)] = name
        for done in as_completed(running):
            code, output = done.result()
            say(f"{running[done]}:\n{output}")
            failed += [] if code in (0, NOTHING_SELECTED) else [running[done]]
    say(f"failed: {', '.join(sorted(failed))}" if failed else "all that are here passed")
    return 1 if failed else 0


def lines_of_tests(place):
    return sum(len(path.read_text().splitlines()) for path in (HERE / place).glob("test_*.py"))


def say(words):
    sys.stdout.write(words.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
