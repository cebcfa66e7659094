"""The contents of the environments: hashed locks, bills of materials, licences, known advisories.

    python tests/validation/supply/supply.py COMMAND

release writes dist/: the last commit's wheel, built twice, its hash and its bill of materials; it installs the wheel on
each Python of PYTHONS. lock writes locks/ENV.txt next to this file: the packages that tox's `deps` lead to, with
hashes. sbom writes sbom/ENV.json (CycloneDX) for each environment in .tox. licences prints a table of their licences.
advisories checks locked versions against a folder (STAGEBENCH_ADVISORIES) of OSV files and of an index's own
pages as JSON, which list yanked releases (PEP 691); with --digest D, only if the folder still has that digest.

uv (for CNTK pip) resolves, cyclonedx-py writes the bills; the program itself asks no index.
"""

import argparse
import configparser
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[3]
LOCKS, BILLS = ROOT / "tests" / "validation" / "supply" / "locks", ROOT / "sbom"
MADE = Path(os.environ.get("STAGEBENCH_TOX_DIR", ROOT / ".tox"))
PYTHON = "3.11"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")  # on which the wheel is installed before a release
MOST = 3_000_000  # bytes of the wheel
HOROVOD = ("horovod-mxnet", "horovod-pytorch", "horovod-tensorflow")  # and Horovod's own source
ENVIRONMENTS = (
    "pytorch", "tensorflow", "caffempi", "jax", "mxnet", "onnxruntime", "openvino",
    "mpi-openmpi5", "mpi-openmpi4", "mpi-mpich", *HOROVOD
)  # fmt: skip
CNTK = "cntk"  # its Python is older than any that uv resolves for: its own pip does
CONTROLLER = "stagebench"
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
NO_SNAPSHOT = (
    "no snapshot, so no advisories and no yanked versions were looked at: STAGEBENCH_ADVISORIES names no folder; "
    "unpack osv.dev's export for PyPI into one, and name it there"
)


def deps(environment: str) -> list[str]:
    """What tox installs into an environment."""
    command = [sys.executable, "-m", "tox", "config", "-e", environment, "-k", "deps"]
    told = configparser.ConfigParser(interpolation=None)
    told.read_string(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return told[f"testenv:{environment}"]["deps"].split("\n")[1:]


def lock() -> int:
    """Write the locks; uv keeps the versions that they hold, as long as the dependencies allow them."""
    LOCKS.mkdir(exist_ok=True)
    for environment in (CONTROLLER, *ENVIRONMENTS):
        lock_by_resolving(environment)
    lock_by_download(CNTK)
    return 0


def lock_by_resolving(environment: str) -> None:
    """Of what uv makes of the dependencies."""
    # The registry's own builds, not those of a folder on this machine.
    environ = {name: value for name, value in os.environ.items() if name != "UV_FIND_LINKS"}
    wanted = "pyproject.toml" if environment == CONTROLLER else "-"
    command = ["uv", "pip", "compile", wanted, "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command += ["--python-version", PYTHON, "--output-file", str(LOCKS / f"{environment}.txt")]
    given = "" if environment == CONTROLLER else "\n".join(deps(environment))
    subprocess.run(command, cwd=ROOT, check=True, input=given, text=True, stdout=subprocess.DEVNULL, env=environ)


def lock_by_download(environment: str) -> None:
    """Of what the environment's own pip fetches for its Python and this platform."""
    with tempfile.TemporaryDirectory() as place:
        pip = [str(MADE / environment / "bin" / "python"), "-m", "pip", "download", "--quiet", "--dest", place]
        subprocess.run([*pip, *" ".join(deps(environment)).split()], check=True)
        pins = sorted(pin(path) for path in Path(place).iterdir())
    (LOCKS / f"{environment}.txt").write_text("".join(pins))


def pin_of(file: str) -> tuple[str, str]:
    """(name, version) of a wheel or a source archive."""
    stem = file.removesuffix(".tar.gz").removesuffix(".zip")
    name, version = stem.split("-")[:2] if file.endswith(".whl") else stem.rsplit("-", 1)
    return name, version


def pin(path: Path) -> str:
    """The lock's lines for one of them."""
    name, version = pin_of(path.name)
    return f"{normal(name)}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def sbom() -> int:
    """Write the bills of the environments that have been made."""
    BILLS.mkdir(exist_ok=True)
    for python in sorted(MADE.glob("*/bin/python")):
        place = BILLS / f"{python.parents[1].name}.json"
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", str(place)]
        subprocess.run([*command, str(python)], check=True)
    return 0


def release() -> int:
    """Write dist/: the wheel of the last commit, SHA256SUMS, a bill; SystemExit unless two builds have equal bytes."""
    dist = ROOT / "dist"
    with tempfile.TemporaryDirectory() as place:
        wheels = [built(Path(place) / name) for name in ("one", "two")]
        contents = {path.read_bytes() for path in wheels}
        if len(contents) > 1 or len(min(contents)) > MOST:
            sys.exit(f"{wheels[0].name}: {len(min(contents)):,} bytes, in {len(contents)} forms; no release")
        wheel = dist / wheels[0].name
        dist.mkdir(exist_ok=True)
        wheel.write_bytes(min(contents))
        for version in PYTHONS:
            sys.stdout.write(f"Python {version}: {installed(wheel, version, Path(place) / version)}\n")
        python = str(Path(place) / PYTHON / "bin" / "python")
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", python]
        subprocess.run([*command, "-o", str(dist / f"{wheel.stem}.cdx.json")], check=True)
    files = sorted(path for path in dist.iterdir() if path.name.startswith(wheel.stem))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (dist / "SHA256SUMS").write_text("".join(sums))
    sys.stdout.write("".join(sums))
    return 0


def built(place: Path) -> Path:
    """Build the last commit's wheel in a clone; the time of every file in it is the commit's."""
    git = ["git", "-C", str(ROOT)]
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place)], check=True)
    epoch = subprocess.run(
        [*git, "log", "-1", "--format=%ct"], check=True, capture_output=True, text=True
    ).stdout.strip()
    environ = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", "dist"], cwd=place, check=True, env=environ)
    (wheel,) = (place / "dist").glob("*.whl")
    return wheel


def installed(wheel: Path, version: str, place: Path) -> str:
    """Install the wheel on a Python; return the version that it reports. SystemExit if this Python is not here."""
    offline = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    if subprocess.run(
        ["uv", "venv", "--quiet", "--python", version, str(place)], env=offline, capture_output=True
    ).returncode:
        sys.exit(f"Python {version} is not here, so the wheel was not tried on it: `uv python install {version}`")
    python = str(place / "bin" / "python")
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, str(wheel)], check=True)
    command = [str(place / "bin" / "stagebench"), "--version"]
    return subprocess.run(command, cwd=place, check=True, capture_output=True, text=True, env=clean()).stdout.strip()


def clean() -> dict[str, str]:
    """Return this process's variables without the path of a checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def licences() -> int:
    """By package, from the bills."""
    found = {
        (part["name"], part.get("version", ""), licence_of(part))
        for bill in sorted(BILLS.glob("*.json"))
        for part in json.loads(bill.read_text()).get("components", [])
    }
    sys.stdout.write("".join(f"| {' | '.join(row)} |\n" for row in [("package", "version", "licence"), *sorted(found)]))
    return 0 if found else 1


def licence_of(part: dict[str, object]) -> str:
    """As the package declares it."""
    rows = part.get("licenses") or []
    assert isinstance(rows, list)
    names = [row.get("expression") or row["license"].get("id") or row["license"].get("name") or "" for row in rows]
    return ", ".join(dict.fromkeys(name.splitlines()[0] for name in names if name)) or "not declared"


def locked() -> Iterator[tuple[str, str, str]]:
    """(environment, package in its normal form, version) of every lock."""
    for path in sorted(LOCKS.glob("*.txt")):
        for name, version in PINNED.findall(path.read_text()):
            yield path.stem, normal(name), version


def normal(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def order(version: str) -> tuple[int, Any]:
    """What versions are compared by: PEP 440's order; "0", and what is no version of PEP 440, comes before all."""
    if version == "0":
        return -1, ""
    try:
        return 1, Version(version)
    except InvalidVersion:
        return 0, version


def within(version: str, events: list[dict[str, str]]) -> bool:
    """Whether a range of OSV's affects a version; the algorithm of its schema's page, "Evaluation"."""
    limits = [each["limit"] for each in events if "limit" in each]
    if limits and "*" not in limits and all(order(version) >= order(limit) for limit in limits):
        return False
    found = False
    # An `introduced` that names the version of another event comes last: better one alarm too many.
    for kind, at in sorted(
        ((kind, at) for each in events for kind, at in each.items() if kind != "limit"),
        key=lambda event: (order(event[1]), event[0] == "introduced"),
    ):
        if kind == "introduced" and order(version) >= order(at):
            found = True
        elif (kind == "fixed" and order(version) >= order(at)) or (
            kind == "last_affected" and order(version) > order(at)
        ):
            found = False
    return found


def affects(affected: dict[str, Any], version: str) -> bool:
    """Whether an entry of an advisory's `affected` holds of a version: one that it lists, or in a range of versions."""
    listed = {order(each) for each in affected.get("versions", [])}
    ranges = [each["events"] for each in affected.get("ranges", []) if each["type"] != "GIT"]
    return order(version) in listed or any(within(version, events) for events in ranges)


Warned = tuple[str, Callable[[str], bool]]  # why, and of which versions


def named(content: dict[str, Any]) -> Iterator[tuple[str, Warned]]:
    """(package, warning) of an advisory's file that was not withdrawn, or of an index's page."""
    for affected in [] if content.get("withdrawn") else content.get("affected", []):
        if affected.get("package", {}).get("ecosystem", "").partition(":")[0] == "PyPI":
            yield affected["package"]["name"], (content["id"], partial(affects, affected))
    for file in content.get("files", []):
        if file.get("yanked"):
            reason = f" ({file['yanked']})" if isinstance(file["yanked"], str) else ""
            yield content["name"], (f"yanked{reason}", partial(same, pin_of(file["filename"])[1]))


def same(one: str, other: str) -> bool:
    """Whether two spellings mean one version: 1.0 and 1.0.0 do."""
    return order(one) == order(other)


def snapshot(place: Path, wanted: str | None) -> dict[Path, dict[str, Any]]:
    """The snapshot's files; SystemExit for a folder without any, and for one that is not as it was pinned."""
    files = {path: path.read_bytes() for path in sorted(place.rglob("*.json"))}
    if not files:
        sys.exit(
            f"STAGEBENCH_ADVISORIES names {place}, where no .json file is: name the folder that osv.dev's export was "
            "unpacked into, or unset it"
        )
    whole = hashlib.sha256()
    for path, content in files.items():
        whole.update(f"{path.relative_to(place)} {hashlib.sha256(content).hexdigest()}\n".encode())
    digest = whole.hexdigest()[:32]
    if wanted not in (None, digest):
        sys.exit(f"{place} has the digest {digest}, not {wanted}: name the folder that was pinned, or pin this one")
    read = {path: json.loads(content) for path, content in files.items()}
    if strange := [str(path) for path, content in read.items() if not isinstance(content, dict)]:
        sys.exit(f"{strange[0]} holds no advisory and no page of an index: remove it from the snapshot")
    newest = max(str(content.get("modified") or "") for content in read.values()) or "of no known date"
    sys.stdout.write(f"snapshot {place}: {len(read)} files, the newest {newest}, digest {digest}\n")
    return read


def advisories(digest: str | None = None) -> int:
    """Those of the snapshot that affect a locked version; likewise what was yanked."""
    place = os.environ.get("STAGEBENCH_ADVISORIES", "")
    if not place and digest is not None:
        sys.exit("--digest pins a snapshot, and there is none: name its folder with STAGEBENCH_ADVISORIES")
    if not place:
        sys.stdout.write(NO_SNAPSHOT + "\n")
        return 0
    known: dict[str, list[Warned]] = {}
    for content in snapshot(Path(place), digest).values():
        for package, warned in named(content):
            known.setdefault(normal(package), []).append(warned)
    pins, found = list(locked()), 0
    for environment, name, version in pins:
        why = dict.fromkeys(why for why, concerns in known.get(name, ()) if concerns(version))
        found += bool(why)
        if why:
            sys.stdout.write(f"{environment}: {name} {version}: {', '.join(why)}\n")
    sys.stdout.write(f"{found} of {len(pins)} locked versions have advisories\n")
    return int(bool(found))


COMMANDS: dict[str, Callable[[], int]] = {
    "release": release,
    "lock": lock,
    "sbom": sbom,
    "licences": licences,
    "advisories": advisories,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--digest", help="of the snapshot of advisories, as it was printed when it was pinned")
    given = parser.parse_args()
    if given.command == "advisories":
        return advisories(given.digest)
    if given.digest is not None:
        parser.error("--digest is of `advisories`")
    return COMMANDS[given.command]()


if __name__ == "__main__":
    sys.exit(main())
