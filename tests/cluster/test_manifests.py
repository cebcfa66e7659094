"""Manifests: exact files for each kind of job, their structure, and what a Job's pod runs, really run.

`python tests/cluster/test_manifests.py` writes the golden files anew: read what changed.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stagebench.cluster.kubernetes import jobs
from stagebench.cluster.kubernetes.jobs import LONGEST, Inside, Settings, inside, label, text_of, write
from stagebench.suite.cli import app
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import Resolved, load, resolve
from stagebench.suite.plugins import adapters, launchers, model_servers, workloads
from stagebench.suite.worker.case_parts import Sampling, Serving
from tests.support import plans
from tests.support.errors import raising

GOLDEN = Path(__file__).with_name("manifests")
SCHEMAS = "STAGEBENCH_OPERATOR_SCHEMAS"  # a folder with the operators' CustomResourceDefinitions, as they publish them
OPERATORS = {  # by kind: the file, and where a job's pods stand
    "MPIJob": ("kubeflow.org_mpijobs.yaml", "mpiReplicaSpecs"),
    "PyTorchJob": ("kubeflow.org_pytorchjobs.yaml", "pytorchReplicaSpecs"),
}
SETTINGS = Settings("registry.example/stagebench:1", "bench", "stagebench", "stagebench-ssh")
QUICK = Sampling(warmup_steps=2, steps=5, seconds=0.0, processes=1, quick=True)
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035


def case(adapter, strategy, **place):
    placement = Placement(**{"launcher": "local", **place})
    return Case(adapter, strategy, "resnet50", placement, batch=32, sampling=QUICK, passes=("native",))


CASES = {
    "job": case("tensorflow", "mirrored", devices=2, device="cuda", threads=4),
    "job-mpiexec": case("caffempi", "data_parallel", ranks_per_node=4, launcher="mpiexec"),
    "mpijob-mpiexec": case("cntk", "one_bit_sgd", nodes=4, ranks_per_node=2, launcher="mpiexec", hosts=tuple("abcd")),
    "mpijob-ssh": case("mxnet", "dist_sync", nodes=2, threads=8, launcher="ssh"),
    "pytorchjob": case("pytorch", "ddp", nodes=3, ranks_per_node=8, device="cuda", threads=6, launcher="ssh"),
    "inferenceservice": case("onnxruntime", "inference", threads=2).on(
        workload="vit_ti16", batch=1, passes=("offline", "server"), serving=Serving(model_server="kserve", workers=2)
    ),
}


def within(plan, number, case, namespace):
    return inside(plan, number, case, namespace, adapters()[case.adapter].kubernetes_job)


def written(name):
    number = list(CASES).index(name) + 1
    return text_of(within("the plan", number, CASES[name], SETTINGS.namespace), "the plan", SETTINGS)


def documents(name):
    """The plan and the job of a file, and what lies between them."""
    config, *between, job = yaml.safe_load_all(written(name))
    return config, job, between


def test_exact_files():
    for name in CASES:
        assert written(name) == (GOLDEN / f"{name}.yaml").read_text(), name
    assert {path.stem for path in GOLDEN.glob("*")} == set(CASES)


# --- structure -----------------------------------------------------------------


def pods_of(job):
    """(role, how many, pod template) of every kind of pod of a job."""
    if job["kind"] == "Job":
        return [("Job", 1, job["spec"]["template"])]
    replicas = job["spec"]["mpiReplicaSpecs" if job["kind"] == "MPIJob" else "pytorchReplicaSpecs"]
    return [(role, each["replicas"], each["template"]) for role, each in replicas.items()]


def strict(schema):
    """The same, which refuses what the operators would prune in silence."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        found["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return found


@pytest.fixture(scope="module")
def problems():
    """Gives what the operator's schema finds wrong with a job; a plain Job has the pod template of the others."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    if SCHEMAS not in os.environ:
        pytest.skip(f"{SCHEMAS} names no folder with the operators' schemas; docs/kubernetes.md says which")

    def of(job):
        plain = job["kind"] == "Job"
        file, pods = OPERATORS["MPIJob" if plain else job["kind"]]
        definition = yaml.safe_load(Path(os.environ[SCHEMAS], file).read_text())["spec"]
        (version,) = definition["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        if plain:
            schema = schema["properties"]["spec"]["properties"][pods]["additionalProperties"]["properties"]["template"]
            job = job["spec"]["template"]
        else:
            assert job["apiVersion"] == f"{definition['group']}/{version['name']}"
        return [error.message for error in validator(strict(schema)).iter_errors(job)]

    return of


@pytest.mark.parametrize("name", CASES)
def test_a_job_satisfies_its_operator_s_published_schema(name, problems):
    _, job, _ = documents(name)
    assert problems(job) == []
    for _, _, pod in pods_of(job):
        pod["spec"]["containers"][0]["imagee"] = pod["spec"]["containers"][0].pop("name")
    assert any("imagee" in problem for problem in problems(job))


@pytest.mark.parametrize("name", CASES)
def test_a_job_asks_for_what_the_placement_says(name):
    _, job, _ = documents(name)
    place = CASES[name].placement
    part = "app.kubernetes.io/component"
    nodes = [(count, pod) for _, count, pod in pods_of(job) if pod["metadata"]["labels"][part] == "node"]
    assert sum(count for count, _ in nodes) == place.nodes
    per_node = place.ranks_per_node * place.devices
    for _, pod in nodes:
        asked = pod["spec"]["containers"][0]["resources"]
        communicating = place.ranks_per_node if place.ranks > 1 else 0
        communicating += CASES[name].serving.model_server != "inprocess"
        assert asked["requests"]["cpu"] == str(per_node * place.threads + communicating)
        assert asked.get("limits", {}) == ({"nvidia.com/gpu": str(per_node)} if place.device == "cuda" else {})
        assert ("affinity" in pod["spec"]) == (place.nodes > 1)
    reading = CASES[name].on(data="photographs", readers=3)
    cores = [int(jobs.resources(Inside("a", "MPIJob", each))["requests"]["cpu"]) for each in (reading, CASES[name])]
    assert cores[0] - cores[1] == 3 * place.ranks_per_node, "beside the training"


@pytest.mark.parametrize("name", CASES)
def test_a_job_s_parts_fit_together(name):
    config, job, _ = documents(name)
    assert config["metadata"] == job["metadata"]
    assert LABEL.fullmatch(job["metadata"]["name"])
    for role, count, pod in pods_of(job):
        assert len(f"{job['metadata']['name']}-{role}-{count}") <= 63
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        assert [mount["name"] for mount in container["volumeMounts"]] == list(volumes)
        assert volumes["results"]["persistentVolumeClaim"]["claimName"] == SETTINGS.claim
        if "plan" in volumes:
            assert volumes["plan"]["configMap"]["name"] == config["metadata"]["name"]
        if "affinity" in pod["spec"]:
            (rule,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert rule["labelSelector"]["matchLabels"] == pod["metadata"]["labels"]


@pytest.mark.parametrize("name", CASES)
def test_the_plan_inside_is_the_one_case_with_the_pods_for_hosts(name, tmp_path):
    config, job, _ = documents(name)
    (tmp_path / "plan.toml").write_text(config["data"]["plan.toml"])
    (found,) = resolve(load(tmp_path / "plan.toml"), adapters(), launchers(), workloads())
    name, place = job["metadata"]["name"], found.case.placement
    hosts = {
        "Job": (),
        "MPIJob": tuple(f"{name}-worker-{i}.{name}.bench.svc" for i in range(place.nodes)),
        "PyTorchJob": (f"{name}-master-0", *(f"{name}-worker-{i}" for i in range(place.nodes - 1))),
    }
    assert place.hosts == hosts[job["kind"]]
    asked = next(one for one in CASES.values() if one.adapter == found.case.adapter)
    given = asked.placement
    assert (place.nodes, place.ranks_per_node, place.launcher) == (given.nodes, given.ranks_per_node, given.launcher)


def test_a_case_behind_kserve_asks_the_service_that_serves_its_network():
    config, job, (service,) = documents("inferenceservice")
    assert service["metadata"] == job["metadata"]
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    predictor, name = service["spec"]["predictor"], service["metadata"]["name"]
    assert predictor["minReplicas"] == predictor["maxReplicas"] == 2
    assert predictor["model"]["storageUri"] == f"pvc://{SETTINGS.claim}/networks/vit_ti16"
    held = {"cpu": "2"}  # a runtime has limits of its own, which a larger request would pass
    assert predictor["model"]["resources"] == {"requests": held, "limits": held}
    (asked,) = tomllib.loads(config["data"]["plan.toml"])["cases"]
    assert (asked["model_server"], asked["workers"]) == ("open-inference", 2)
    assert f"{asked['address']}/ready;" in job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert asked["address"] == f"http://{name}-predictor.bench.svc.cluster.local/v2/models/vit_ti16"
    assert not model_servers()[asked["model_server"]].program
    assert len(f"{name}-predictor") <= 63
    assert all(not documents(other)[2] for other in CASES if other != "inferenceservice")


def test_the_training_operator_finds_its_container_and_names_are_labels_whatever_the_plan_is_called():
    _, job = yaml.safe_load_all(written("pytorchjob"))
    assert {pod["spec"]["containers"][0]["name"] for _, _, pod in pods_of(job)} == {"pytorch"}
    assert job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] == 1
    assert label("7 Nodes_of.mine") == "p7-nodes-of-mine"
    long = within("x" * 80, 100, CASES["pytorchjob"], "bench").name
    assert LABEL.fullmatch(long)
    assert len(long) <= LONGEST


# --- the command ---------------------------------------------------------------

PLAN = plans.brief(
    {"adapter": "reference", "strategy": "single", "precision": "float64", "batch": [1, 2]},
    {"adapter": "pytorch", "strategy": "single", "ranks": 2},
    sampling={"warmup_steps": 1, "warmup_limit": 1.0, "steps": 2},
)


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def stagebench(*words):
    return CliRunner().invoke(app.build(), list(map(str, words)))


def test_what_a_cluster_cannot_have_is_skipped_and_named(plan, tmp_path):
    done = stagebench("manifests", plan, "-o", tmp_path / "out", "--image", "i", "--claim", "c")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"2 manifests in {tmp_path / 'out'}. Next: kubectl apply -f {tmp_path / 'out'}\n"
    assert "is skipped: unsupported: pytorch's strategy 'single' trains on one rank" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"brief-0{number}-reference-single-mnist-small.yaml" for number in (1, 2)
    ]
    with raising(RequestError, "brief-01"):
        write("brief", [], tmp_path / "out", SETTINGS)


@pytest.mark.slow
def test_what_a_pod_runs_measures_the_case_and_the_runs_are_collected(plan, tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    stagebench("manifests", plan, "-o", out, "--image", "i")
    for path in sorted(out.iterdir()):
        config, job = yaml.safe_load_all(path.read_text())
        folder = tmp_path / path.stem
        folder.mkdir()
        (folder / "plan.toml").write_text(config["data"]["plan.toml"])
        shell, flags, script = job["spec"]["template"]["spec"]["containers"][0]["command"]
        here = script.replace("/stagebench/", f"{folder}/").replace("/results/", f"{results}/")
        here = here.replace("stagebench run", f"{sys.executable} -m stagebench.suite.cli run --no-proofs")
        done = subprocess.run([shell, flags, here], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    runs = sorted((results / "brief").iterdir())
    done = stagebench("collect", *runs, "-o", tmp_path / "all")
    assert done.stdout.startswith(f"{tmp_path / 'all'}: 2 records of 2 runs\nNext: stagebench report "), done.output
    rows = json.loads(stagebench("report", tmp_path / "all", "--json").stdout)
    assert [(row["case"]["batch"], row["outcome"]) for row in rows] == [(1, "ok"), (2, "ok")]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in CASES:
        (GOLDEN / f"{each}.yaml").write_text(written(each))


HOSTILE = "x\nkind: Pod\u2028evil: $(id)'\"\x1b]0;x\x07"


def test_hostile_values_stay_values():
    """Nothing that a person writes becomes a key of the manifest, or a command of the pod."""
    settings = Settings(HOSTILE, "bench", HOSTILE, HOSTILE)
    hostile = CASES["pytorchjob"].on(data=f"/{HOSTILE}", workload=HOSTILE)
    plain = list(yaml.safe_load_all(text_of(within("p", 1, CASES["pytorchjob"], "bench"), "p", settings)))
    found = list(yaml.safe_load_all(text_of(within(HOSTILE, 1, hostile, "bench"), HOSTILE, settings)))
    assert [(each["kind"], set(each)) for each in found] == [(each["kind"], set(each)) for each in plain]
    pod = found[1]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert pod["containers"][0]["image"] == HOSTILE
    assert "$(id)" not in pod["containers"][0]["command"][-1]
    job = within("p", 1, CASES["mpijob-ssh"], "bench; id")  # were a name ever to hold a shell's signs
    script = jobs.controller(job, SETTINGS, "a b")["command"][-1]
    assert "'/results/a b/" in script
    assert f"'{job.case.placement.hosts[0]}'" in script


@pytest.mark.parametrize("namespace", ["a b", "a;id", "-n", "a.b", "a\nb", ""])
def test_a_namespace_that_is_none_and_a_launcher_of_another_engine_are_refused(tmp_path, namespace):
    with pytest.raises(RequestError, match="no namespace"):
        write("p", [Resolved(CASES["job"], None, "")], tmp_path / "out", Settings("image", namespace, "", ""))
    other = [Resolved(case("pytorch", "ddp", nodes=2, launcher="slurm"), None, "")]
    with pytest.raises(RequestError, match=r"'slurm' .*local, mpiexec, ssh"):
        write("tiny", other, tmp_path / "out", SETTINGS)


def test_the_next_command_takes_the_folder_for_one_word(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("jobs; id", "-f"):
        done = stagebench("manifests", plan, "-o", name, "--image", "i")
        *command, folder = shlex.split(done.stdout.partition("Next: ")[2])
        assert (command, Path(folder)) == (["kubectl", "apply", "-f"], Path(name))
        assert not folder.startswith("-")
