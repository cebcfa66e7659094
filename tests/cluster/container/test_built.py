"""The image's recipe, built by a real container engine, and what a pod does in it; before a release, as root.

STAGEBENCH_BUILD_OPTIONS has what a site's engine needs besides to build: `--network host`, a volume of wheels.
"""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENGINES = ("docker", "podman", "buildah")
IMAGE = "localhost/stagebench-test"
# The framework that is made soonest; CNTK's Python is not compiled.
ARGUMENTS = {"ENVIRONMENTS": "caffempi", "PYTHON36": ""}
WHERE_WHEELS_ARE = ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


@pytest.fixture(scope="module")
def engine():
    """A container engine that answers here."""
    why = []
    for name in filter(shutil.which, ENGINES):
        said = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            return name
        why.append(f"{name}: {said.stderr.strip().splitlines()[-1]}")
    pytest.skip("; ".join(why) or f"no container engine: one of {', '.join(ENGINES)}")


@pytest.fixture(scope="module")
def image(engine):
    """Built of this source tree."""
    given = {name: os.environ[name] for name in WHERE_WHEELS_ARE if name in os.environ} | ARGUMENTS
    arguments = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    recipe = ROOT / "cluster" / "kubernetes" / "Dockerfile"
    more = shlex.split(os.environ.get("STAGEBENCH_BUILD_OPTIONS", ""))
    subprocess.run([engine, "build", *more, *arguments, "-f", str(recipe), "-t", IMAGE, str(ROOT)], check=True)
    yield IMAGE
    subprocess.run([engine, "rmi", "-f", IMAGE], check=True)


def inside(engine, image, folder, *words):
    """A command in a container of the image, with a folder of ours in it as /results."""
    mount = ["-v", f"{folder}:/results"]
    if engine == "buildah":
        made = subprocess.run([engine, "from", image], check=True, capture_output=True, text=True).stdout.strip()
        try:
            return subprocess.run(
                [engine, "run", *mount, made, "--", *words], capture_output=True, text=True, check=False
            )
        finally:
            subprocess.run([engine, "rm", made], check=True, capture_output=True)
    tokens = [engine, "run", "--rm", *mount, image, *words]
    return subprocess.run(tokens, capture_output=True, text=True, check=False)


def test_ranks_train_in_a_container_and_are_proven(engine, image, tmp_path):
    options = "--adapter caffempi --workload mnist_small --batch 8 --ranks 2 --passes native"
    sampling = "--steps 5 --seconds 0 --processes 1"
    run = ("stagebench", "run", *options.split(), *sampling.split(), "-o", "/results/run", "--json")
    done = inside(engine, image, tmp_path, *run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 1}
    (proof,) = (tmp_path / "run" / "proofs").glob("*.json")
    assert json.loads(proof.read_text())["passed"] is True


def test_pods_can_log_in_to_each_other(engine, image, tmp_path):
    script = (
        "cd /root/.ssh && ssh-keygen -q -t ed25519 -N '' -f id_ed25519 && cp id_ed25519.pub authorized_keys"
        " && { /usr/sbin/sshd -D -p 2222 & } && sleep 1"
        " && ssh -p 2222 127.0.0.1 /opt/stagebench/bin/stagebench --version; code=$?; kill $!; exit $code"
    )
    done = inside(engine, image, tmp_path, "sh", "-c", f"mkdir -p -m 700 /root/.ssh && {script}")
    assert done.returncode == 0, done.stdout + done.stderr
