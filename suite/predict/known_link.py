"""A link between ranks, how well it is known, and where it comes from."""

from dataclasses import dataclass

from suite.analysis.links import Fit
from suite.predict.collectives import Cost, Link, Network

CERTAIN = 2.0  # standard errors
MOST_ERROR = 0.9  # of a link or a device of which next to nothing is known


@dataclass(frozen=True)
class KnownLink:
    """A link, the relative half width of its 95 % interval, and in words where it comes from."""

    link: Link
    error: float
    source: str
    within: Link | None = None  # a node, where that was measured by itself
    interference: float = 0.0  # seconds that computing lost by each second of the exchange that it follows from


def of_fit(fit: Fit, ranks: int, network: Network, source: str) -> KnownLink:
    """Of exchanges over so many ranks by the network's algorithm; its error is that of a large message."""
    link = network.link_of(ranks, Cost(fit.alpha, fit.beta))
    return KnownLink(link, CERTAIN * fit.beta_error / fit.beta, source)
