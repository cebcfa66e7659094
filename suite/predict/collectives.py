"""The cost of exchanging gradients: a start-up and seconds a byte, by algorithm, over links of alpha, beta and gamma.

A message of M bytes crosses a link in alpha + M beta seconds, and adding M bytes up takes M gamma (Hockney 1994). Over
p ranks, q the largest power of 2 in p, L = log2 q:

| algorithm | seconds of an all-reduce | source |
|---|---|---|
| ring | 2(p-1) alpha + 2(p-1)/p M beta + (p-1)/p M gamma | Patarasuk & Yuan 2009 |
| tree | 2 ceil(log2 p) alpha + 2 M beta + M gamma: a double binary tree, its pieces pipelined | Sanders et al. 2009 |
| doubling | L (alpha + M beta + M gamma), recursive doubling | Thakur et al. 2005 |
| halving | 2 L alpha + 2(q-1)/q M beta + (q-1)/q M gamma, recursive halving and doubling | Thakur et al. 2005 |
| hierarchical | rings within the nodes; between them a ring for each rank of a node, which share its interface | |
| server | push and pull, 2 alpha + 2 max(1, p/servers) M beta + p/servers M gamma | Li et al. 2014 |

Where p is no power of 2, doubling and halving first fold the other ranks in and send them the sum at the end:
2 alpha + 2 M beta + M gamma more. On several nodes the link between them paces every step of a flat algorithm.
"""

import math
from dataclasses import dataclass, replace

from stagebench.suite.analysis.links import Fit
from stagebench.suite.analysis.stats import student_t
from stagebench.suite.errors import RequestError
from stagebench.suite.text import known

MOST_ERROR = 0.9  # of a link or a device of which nearly nothing is known


@dataclass(frozen=True)
class Cost:
    """Seconds of one exchange: `start` + `per_byte` x bytes."""

    start: float
    per_byte: float

    def seconds(self, size: float) -> float:
        return self.start + self.per_byte * size


@dataclass(frozen=True)
class Link:
    """Seconds to begin a message, seconds a byte to move it, seconds a byte to add it up; RequestError below 0."""

    alpha: float
    beta: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            not_negative(f"{name} of a link", value, "seconds" if name == "alpha" else "seconds a byte")

    def scaled(self, start: float, per_byte: float) -> "Link":
        """Return a link that takes `start` times as long to begin a message, and `per_byte` times for each byte."""
        return Link(self.alpha * start, self.beta * per_byte, self.gamma * per_byte)


def not_negative(name: str, value: float, unit: str) -> None:
    """RequestError for a number below 0, infinite or none."""
    if not 0 <= value < math.inf:
        raise RequestError(f"the {name} is {value} {unit}; give 0 or a finite positive number")


def positive(name: str, value: float) -> None:
    """RequestError for a number that is not above 0 and finite."""
    if not 0 < value < math.inf:
        raise RequestError(f"the {name} is {value}; give a finite number above 0")


FREE = Link(0.0, 0.0)  # takes no time
FLAT = ("ring", "tree", "doubling", "halving")
ALGORITHMS = (*FLAT, "hierarchical", "server")


def flat(algorithm: str, ranks: int, link: Link) -> Cost:
    """Return the cost of an all-reduce by one of FLAT, over links that are all alike."""
    if algorithm == "ring":
        share = (ranks - 1) / ranks
        return Cost(2 * (ranks - 1) * link.alpha, share * (2 * link.beta + link.gamma))
    if algorithm == "tree":
        return Cost(2 * math.ceil(math.log2(ranks)) * link.alpha, 2 * link.beta + link.gamma)
    steps = ranks.bit_length() - 1
    start, per_byte = steps * link.alpha, steps * (link.beta + link.gamma)
    if algorithm == "halving":
        start, per_byte = 2 * steps * link.alpha, (1 - 0.5**steps) * (2 * link.beta + link.gamma)
    if ranks & (ranks - 1):  # the other ranks are folded in first, and receive the sum at the end
        start, per_byte = start + 2 * link.alpha, per_byte + 2 * link.beta + link.gamma
    return Cost(start, per_byte)


@dataclass(frozen=True)
class Network:
    """How ranks reach each other, and how they exchange; RequestError for what cannot be."""

    between: Link = FREE  # nodes
    within: Link | None = None  # a node; None: the same as between nodes
    ranks_per_node: int = 1
    algorithm: str = "ring"
    servers: int = 1  # of "server", each with an interface of its own

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise RequestError(f"there is no algorithm {self.algorithm!r}; {known(self.algorithm, ALGORITHMS)}")
        positive("number of ranks per node", self.ranks_per_node)
        positive("number of servers", self.servers)

    def fills(self, ranks: int) -> bool:
        """Return True if `ranks` ranks fill a part of one node or whole nodes, as a hierarchical exchange requires."""
        return ranks < self.ranks_per_node or ranks % self.ranks_per_node == 0

    def all_reduce(self, ranks: int) -> Cost:
        """Return the cost of one message over `ranks` ranks; nothing on one."""
        if ranks == 1:
            return Cost(0.0, 0.0)
        nodes = math.ceil(ranks / self.ranks_per_node)
        within = self.within or self.between
        link = within if nodes == 1 else self.between
        if self.algorithm == "server":
            load = ranks / self.servers
            return Cost(2 * link.alpha, 2 * max(1.0, load) * link.beta + load * link.gamma)
        if self.algorithm in FLAT:
            return flat(self.algorithm, ranks, link)
        if not self.fills(ranks):
            raise RequestError(
                f"{ranks} ranks fill no whole number of nodes of {self.ranks_per_node}; ask for a multiple"
            )
        inner, outer = flat("ring", min(ranks, self.ranks_per_node), within), flat("ring", nodes, self.between)
        # The ranks of a node add up their pieces at the same time, but share the interface.
        added = (nodes - 1) / nodes * self.between.gamma * (1 / self.ranks_per_node - 1)
        return Cost(inner.start + outer.start, inner.per_byte + outer.per_byte + added)

    def scaled(self, start: float, per_byte: float) -> "Network":
        """Return the network with links that take `start` and `per_byte` times as long."""
        within = self.within and self.within.scaled(start, per_byte)
        return replace(self, between=self.between.scaled(start, per_byte), within=within)

    def link_of(self, ranks: int, cost: Cost) -> Link:
        """Return the link for which this algorithm costs `cost` on `ranks` ranks; beta includes the reduction.

        RequestError on one rank, which exchanges nothing.
        """
        if ranks < 2:
            raise RequestError("a link cannot be told from an exchange on one rank; measure two")
        unit = Network(Link(1.0, 1.0), None, self.ranks_per_node, self.algorithm, self.servers).all_reduce(ranks)
        return Link(cost.start / unit.start, cost.per_byte / unit.per_byte)


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
    return KnownLink(link, student_t(0.975, fit.samples - 2) * fit.beta_error / fit.beta, source)
