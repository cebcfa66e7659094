"""A cluster of each engine for all tests; they skip where this Python has none."""

import shutil

import pytest

from stagebench.cluster.gang.ray_launcher import Ray
from stagebench.cluster.gang.spark_launcher import Spark
from tests.cluster.engines import clusters

ENGINES = {"spark": (Spark, "pyspark", clusters.spark), "ray": (Ray, "ray", clusters.ray)}


@pytest.fixture(scope="session", params=ENGINES)
def engine(request):
    """The name of an engine that can be had here."""
    pytest.importorskip(ENGINES[request.param][1], reason="tox run -e engines")
    if request.param == "spark" and not shutil.which("java"):
        pytest.skip("Spark runs in Java: apt-get install default-jre-headless")
    return request.param


@pytest.fixture(scope="session")
def cluster(engine, tmp_path_factory):
    """Its cluster on this machine: the variables by which it is found."""
    with ENGINES[engine][2](tmp_path_factory.mktemp(engine)) as variables:
        yield variables


@pytest.fixture
def launcher(engine, cluster, monkeypatch):
    """The launcher over that cluster."""
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    return ENGINES[engine][0]()
