"""The check that a data set fits a network, from headers and listings alone, before anything starts."""

from dataclasses import dataclass
from pathlib import Path

from suite.data.sets import SETS, home, kind_of, made, real
from suite.files import expanded, stands
from suite.text import known, shown
from suite.worker.image_folder import refuse_odd_name
from workloads.graph import Graph

NAMES = ("synthetic", "real", *SETS)


@dataclass(frozen=True)
class Fit:
    """A plan's data as resolved for a workload: "synthetic", a set's name, or a full path.

    A named set keeps its name, so that a case has the same id wherever a machine keeps the set.
    `outcome` is None, "unsupported", "unavailable" or "wrong" (the plan or the data are broken).
    """

    data: str
    outcome: str | None = None
    reason: str = ""
    path: Path | None = None  # of the data, if they can be read
    samples: int = 0  # if they can be read


def fit(data: str, dataset: str, graph: Graph, base: Path) -> Fit:
    """Resolve a plan's data value: a name, or a path relative to `base`; `dataset` is the set that "real" names."""
    if data == "synthetic":
        return Fit(data)
    name = real(dataset) if data == "real" else data
    value = name
    if name in SETS:
        source = made(name)
        if source is None:
            return Fit(name, "unavailable", f"the data set {name!r} is not in {home()}; get it: {SETS[name].remedy}")
    else:
        source = (base / expanded(name)).absolute()
        value = str(source)
        if not stands(source):
            return Fit(
                data, "wrong", f"data = {shown(data)}: there is no such file or folder ({source}); {known(data, NAMES)}"
            )
        try:
            refuse_odd_name(value)  # of a working folder, since words of commands are text
        except ValueError as error:
            return Fit(data, "wrong", f"data = {shown(data)}: {error}")
    look = _arrays if kind_of(source) == "arrays" else _folder
    try:
        samples, refused = look(source, graph)
    except (OSError, ValueError) as error:
        return Fit(value, "wrong", f"data = {data!r} cannot be read: {error}")
    return Fit(value, "unsupported" if refused else None, refused, source, samples)


def _arrays(path: Path, graph: Graph) -> tuple[int, str]:
    """Return (samples, why they do not fit the network)."""
    from suite.worker.array_files import described

    shape, labels = described(str(path))
    if (1, *shape[1:]) != tuple(graph.input_shape):
        refused = f"{path.name} holds images of 1x{_by(shape[1:])}, {graph.name} wants {_by(graph.input_shape)}"
        return len(labels), refused
    if labels.max(initial=0) >= graph.classes:
        return len(labels), f"{path.name} has labels up to {labels.max()}, {graph.name} has {graph.classes} classes"
    return len(labels), ""


def _folder(path: Path, graph: Graph) -> tuple[int, str]:
    """Return (samples, why they do not fit the network); ValueError for a broken folder."""
    from suite.data.decode import header, lone_class
    from suite.worker.image_folder import listed

    files, classes, _ = listed(str(path))
    first: dict[int, str] = {}  # image of each class; `stagebench data check` decodes all of them
    for file, label in files:
        first.setdefault(label, file)
    for file in first.values():
        header(Path(file))
    problem = lone_class(path, classes)
    if problem:
        raise ValueError(problem)
    if len(graph.input_shape) != 3 or graph.input_shape[0] != 3:
        return len(files), f"{path.name} holds colour images, {graph.name} wants {_by(graph.input_shape)}"
    if len(classes) > graph.classes:
        return len(files), f"{path.name} has {len(classes)} classes, {graph.name} tells {graph.classes} apart"
    return len(files), ""


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
