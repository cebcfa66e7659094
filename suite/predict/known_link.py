"""A link between ranks, how well it is known, and where it comes from: numbers, or a run of `stagebench comm`."""

from dataclasses import dataclass, replace

from suite.analysis.links import Fit, links
from suite.contracts.case import ALL_REDUCE
from suite.errors import RequestError
from suite.predict.collectives import Cost, Link, Network
from suite.results.run_folder import RunFolder

CERTAIN = 2.0  # standard errors
MOST_ERROR = 0.9  # of a link or a device of which nearly nothing is known


@dataclass(frozen=True)
class KnownLink:
    """A link, the relative half width of its 95 % interval, and its source in words."""

    link: Link
    error: float
    source: str
    within: Link | None = None  # the link within a node, if that was measured, too
    interference: float = 0.0  # seconds of computing lost by each second of the exchange behind it


def of_fit(fit: Fit, ranks: int, network: Network, source: str) -> KnownLink:
    """Return the link of exchanges over `ranks` ranks by the network's algorithm, with the error of a large message."""
    link = network.link_of(ranks, Cost(fit.alpha, fit.beta))
    return KnownLink(link, CERTAIN * fit.beta_error / fit.beta, source)


def of_comm(folder: RunFolder, backend: str | None, network: Network) -> KnownLink:
    """Return the link of a run's all-reduce; RequestError without one, or with several to choose from.

    If the run has exchanges over several nodes, that is the link between them; exchanges on one node give the link
    within.
    """
    found = [
        (link, link.fit)
        for link in links(folder)
        if link.fit and link.fit.tells_bandwidth and link.collective.operation == ALL_REDUCE and link.outcome == "ok"
    ]
    chosen = [(link, fit) for link, fit in found if backend in (None, link.collective.backend)]
    names = ", ".join(dict.fromkeys(link.collective.backend for link, _ in found))
    if not chosen:
        there = (
            f" by {backend}; it has those of {names}"
            if names
            else " that determines a bandwidth; measure three sizes or more, or longer"
        )
        raise RequestError(f"{folder.path} has no fit of {ALL_REDUCE}{there}")
    if len({link.collective.backend for link, _ in chosen}) > 1:
        raise RequestError(f"{folder.path} has measured {names}; choose one with --set backend=NAME")
    chosen.sort(key=lambda each: len(each[0].points))
    near, far = ([each for each in chosen if (each[0].case.placement.nodes > 1) is over] for over in (False, True))
    link, fit = (far or near)[-1]
    source = f"link: {link.case.label}, in {folder.path}"
    between = of_fit(fit, link.case.placement.ranks, network, source)
    if not far or not near:
        return between
    inside, fit = near[-1]
    within = of_fit(fit, inside.case.placement.ranks, network, f"{source}; within a node: {inside.case.label}")
    return replace(between, within=within.link, source=within.source)
