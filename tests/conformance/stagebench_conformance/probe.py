"""The networks that only tests train, as workloads: the probes of every layer kind, and one of photographs."""

from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.plugins import manager
from stagebench.suite.proofs.every_adapter import PROBES
from stagebench.workloads.build import Builder
from stagebench.workloads.catalogue import PHOTOGRAPHS, Optimiser, Workload
from stagebench.workloads.graph import Graph

PICTURES = "probe-pictures"


def pictures_graph() -> Graph:
    """3 x 24 x 24 images, 2 classes: a small network of photographs, for readers."""
    b = Builder(PICTURES, (3, 24, 24), 2)
    b.head(b.dense("fc", b.flatten("flat", b.max_pool("pool", b.conv_relu("conv", "input", 4, 3), 2, 2)), 2))
    return b.graph


class ProbePlugin:
    """Brings both as workloads."""

    @hookimpl
    def stagebench_workloads(self) -> list[Workload]:
        """The networks of every layer kind, and that of photographs."""
        optimiser, how = Optimiser(0.05, 8, 0.9, 1e-3), PHOTOGRAPHS._replace(resize=28)
        return [
            *PROBES,
            Workload(PICTURES, pictures_graph, optimiser, "imagenet-like", 8, 0.05, "tests", how),
        ]


def register() -> None:
    """Make the probe known to this process, once."""
    if not manager().has_plugin("conformance-probe"):
        manager().register(ProbePlugin(), "conformance-probe")
