"""Nodes and links as they were found: processors, memory, GPUs on PCI, and the networks between."""

from collections.abc import Mapping
from html import escape

from reports.figure import Figure, layout
from reports.text import memory
from suite.results.records import Host

MOST = 8  # nodes that are drawn
ACROSS = 4  # GPUs beside each other
UNIT = 36  # pixels
NODE, GPU, GAP = 1.4, 2.0, 0.5  # heights, in units
SPINE, LEFT = 0.03, 0.08  # of the width: the network's line, and where nodes begin


def topology(hosts: Mapping[str, Host]) -> Figure:
    """A node below the other, its GPUs under its processors; the network's line joins all nodes."""
    shown = dict(list(hosts.items())[:MOST])
    shapes: list[Figure] = []
    notes: list[Figure] = []
    top = 0.0
    for name, host in shown.items():
        middle = top - NODE / 2
        shapes.append(_line(SPINE, LEFT, middle, middle))
        gpus = _gpus(host)
        for index, words in enumerate(gpus):
            row, column = divmod(index, ACROSS)
            width = (1 - LEFT) / min(ACROSS, len(gpus))
            left, high = LEFT + column * width, top - NODE - GAP - row * (GPU + GAP)
            shapes.append(_line(left + width / 2, left + width / 2, top - NODE, high))
            _put(shapes, notes, (left + 0.01, left + width - 0.01), (high - GPU, high), words)
        _put(shapes, notes, (LEFT, 1.0), (top - NODE, top), f"<b>{escape(name)}</b><br>{escape(_processors(host))}")
        top -= NODE + GAP + -(-len(gpus) // ACROSS) * (GPU + GAP)
    shapes.insert(0, _line(SPINE, SPINE, -NODE / 2, top))
    found = dict.fromkeys(network for host in shown.values() for network in host.machine.networks)
    more = [f"{len(hosts) - MOST} more nodes"] if len(hosts) > MOST else []
    _put(shapes, notes, (0.0, 1.0), (top - 1, top), escape("; ".join([", ".join(found) or "networks unknown", *more])))
    frame = layout(round((1.4 - top) * UNIT) + 16)
    frame["xaxis"] = {"visible": False, "range": [0, 1], "fixedrange": True}
    frame["yaxis"] = {"visible": False, "range": [top - 1.2, 0.2], "fixedrange": True}
    frame["margin"] = {"l": 8, "r": 8, "t": 8, "b": 8}
    frame |= {"shapes": shapes, "annotations": notes}
    return {"data": [{"type": "scatter", "mode": "lines", "x": [], "y": [], "hoverinfo": "skip"}], "layout": frame}


def _processors(host: Host) -> str:
    sockets = f"{host.machine.sockets} × " if host.machine.sockets else ""  # noqa: RUF001 - the sign is meant
    words = f"{sockets}{host.machine.cpu or 'CPU unknown'}, {host.cores or host.cores_installed or '?'} cores"
    return f"{words}, {memory(host.machine.memory_bytes)}" if host.machine.memory_bytes else words


def _gpus(host: Host) -> list[str]:
    """Number, model and, where every GPU has one, its link; on lines."""
    links = (
        host.machine.gpu_links
        if len(host.machine.gpu_links) == len(host.machine.gpus)
        else [""] * len(host.machine.gpus)
    )
    parts = [(*gpu.partition(" (")[0].split(": ", 1), link) for gpu, link in zip(host.machine.gpus, links, strict=True)]
    return ["<br>".join(escape(part) for part in each if part) for each in parts]


def _put(
    shapes: list[Figure], notes: list[Figure], across: tuple[float, float], up: tuple[float, float], words: str
) -> None:
    """A box with words in its middle."""
    box = {"type": "rect", "x0": across[0], "x1": across[1], "y0": up[0], "y1": up[1]}
    shapes.append({**box, "line": {"color": "--muted", "width": 1}})
    notes.append({"x": sum(across) / 2, "y": sum(up) / 2, "text": words, "showarrow": False, "align": "center"})


def _line(left: float, right: float, low: float, high: float) -> Figure:
    line = {"color": "--muted", "width": 2}
    return {"type": "line", "x0": left, "x1": right, "y0": low, "y1": high, "layer": "below", "line": line}
