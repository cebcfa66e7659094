"""A link that a run of `stagebench comm` has measured."""

from dataclasses import replace

from suite.analysis.links import links
from suite.comm.cases import GRADIENTS
from suite.comm.records import CommFolder
from suite.errors import RequestError
from suite.predict.collectives import Network
from suite.predict.known_link import KnownLink, of_fit


def of_comm(folder: CommFolder, backend: str | None, network: Network) -> KnownLink:
    """The all-reduce of a run of `stagebench comm`; RequestError where there is none, or several to choose from.

    Where the run has exchanges over several nodes, that is the link between them, and within a node what one node did.
    """
    found = [
        (link, link.fit)
        for link in links(folder)
        if link.fit and link.fit.tells_bandwidth and link.case.operation == GRADIENTS and link.outcome == "ok"
    ]
    chosen = [(link, fit) for link, fit in found if backend in (None, link.case.backend)]
    names = ", ".join(dict.fromkeys(link.case.backend for link, _ in found))
    if not chosen:
        there = (
            f" by {backend}; it has those of {names}"
            if names
            else " that determines a bandwidth; measure three sizes or more, or longer"
        )
        raise RequestError(f"{folder.path} has no fit of {GRADIENTS}{there}")
    if len({link.case.backend for link, _ in chosen}) > 1:
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
