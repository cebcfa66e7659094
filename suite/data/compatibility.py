"""Does a data set fit a network? Answered before anything starts, from headers and listings alone."""

from dataclasses import dataclass
from pathlib import Path

from suite.data.sets import SETS, home, kind_of, made, real
from suite.files import expanded, stands
from suite.suggest import known, shown
from workloads.graph import Graph

NAMES = ("synthetic", "real", *SETS)


@dataclass(frozen=True)
class Fit:
    """What a plan's data mean for a workload; `data` is the resolved value: "synthetic", a set's name, or a full path.

    A named set keeps its name: the same case has the same id wherever its machine keeps the set.

    `outcome` is None, "unsupported", "unavailable" or "wrong" (the plan or the data are broken).
    """

    data: str
    outcome: str | None = None
    reason: str = ""
    path: Path | None = None  # where it stands, when it can be read
    samples: int = 0  # that it has, then


def fit(data: str, dataset: str, graph: Graph, base: Path) -> Fit:
    """Resolve a plan's data value: a name, or a path relative to `base`; `dataset` is what "real" means."""
    if data == "synthetic":
        return Fit(data)
    name = real(dataset) if data == "real" else data
    value = name
    if name in SETS:
        found = made(name)
        if found is None:
            return Fit(name, "unavailable", f"the data set {name!r} is not in {home()}; get it: {SETS[name].remedy}")
    else:
        found = (base / expanded(name)).absolute()
        value = str(found)
        if not stands(found):
            return Fit(
                data, "wrong", f"data = {shown(data)}: there is no such file or folder ({found}); {known(data, NAMES)}"
            )
    look = _arrays if kind_of(found) == "arrays" else _folder
    try:
        samples, refused = look(found, graph)
    except (OSError, ValueError) as error:
        return Fit(value, "wrong", f"data = {data!r} cannot be read: {error}")
    return Fit(value, "unsupported" if refused else None, refused, found, samples)


def _arrays(path: Path, graph: Graph) -> tuple[int, str]:
    """(samples, why they do not fit the network)."""
    from suite.worker.array_files import described

    shape, labels = described(str(path))
    if (1, *shape[1:]) != tuple(graph.input_shape):
        refused = f"{path.name} holds images of 1x{_by(shape[1:])}, {graph.name} wants {_by(graph.input_shape)}"
        return len(labels), refused
    if labels.max(initial=0) >= graph.classes:
        return len(labels), f"{path.name} has labels up to {labels.max()}, {graph.name} has {graph.classes} classes"
    return len(labels), ""


def _folder(path: Path, graph: Graph) -> tuple[int, str]:
    """Likewise."""
    from suite.data.check import lone_class
    from suite.worker.image_folder import listed

    files, classes, _ = listed(str(path))
    _open_one_of_each(files)
    problem = lone_class(path, classes)
    if problem:
        raise ValueError(problem)
    if len(graph.input_shape) != 3 or graph.input_shape[0] != 3:
        return len(files), f"{path.name} holds colour images, {graph.name} wants {_by(graph.input_shape)}"
    if len(classes) > graph.classes:
        return len(files), f"{path.name} has {len(classes)} classes, {graph.name} tells {graph.classes} apart"
    return len(files), ""


def _open_one_of_each(files: list[tuple[str, int]]) -> None:
    """Read the header of each class's first image; `stagebench data check` decodes all of them."""
    from suite.data.check import header

    seen: set[int] = set()
    for path, label in files:
        if label not in seen:
            seen.add(label)
            header(Path(path))


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
