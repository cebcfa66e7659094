"""The check that a data set fits a network, from headers and listings alone, before anything starts."""

from dataclasses import dataclass
from pathlib import Path

from stagebench.suite.data.sets import SETS, home, kind_of, made, real, without_digest
from stagebench.suite.files import expanded, stands
from stagebench.suite.text import known, shown
from stagebench.suite.worker import text_files
from stagebench.suite.worker.image_folder import refuse_odd_name
from stagebench.workloads.graph import Graph

NAMES = ("synthetic", "real", *SETS)


@dataclass(frozen=True)
class Fit:
    """A plan's data as resolved for a workload: "synthetic", a set's name, or a full path.

    A named set keeps its name, so that a case has the same id wherever a machine keeps the set. A text's name or path
    ends in @ and its digest: only rows that learnt the same text are compared.
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
    name, wanted = without_digest(real(dataset) if data == "real" else data, base)
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
    kind = kind_of(source)
    look = {"arrays": _arrays, "folder": _folder, "text": _text}[kind]
    try:
        samples, refused = look(source, graph)
        digest = text_files.digest(str(source)) if kind == "text" and not refused else ""
    except (OSError, ValueError) as error:
        return Fit(value, "wrong", f"data = {data!r} cannot be read: {error}")
    if digest and wanted not in ("", digest):
        reason = f"the text {source} has the digest {digest}, not {wanted}; bring that text, or leave @{wanted} out"
        return Fit(data, "unavailable", reason)
    value += f"@{digest}" if digest else ""
    return Fit(value, "unsupported" if refused else None, refused, source, samples)


def _arrays(path: Path, graph: Graph) -> tuple[int, str]:
    """Return (samples, why they do not fit the network)."""
    from stagebench.suite.worker.array_files import described

    shape, labels = described(str(path))
    if (1, *shape[1:]) != tuple(graph.input_shape):
        refused = f"{path.name} holds images of 1x{_by(shape[1:])}, {graph.name} wants {_wanted(graph)}"
        return len(labels), refused
    if labels.max(initial=0) >= graph.classes:
        return len(labels), f"{path.name} has labels up to {labels.max()}, {graph.name} has {graph.classes} classes"
    return len(labels), ""


def _folder(path: Path, graph: Graph) -> tuple[int, str]:
    """Return (samples, why they do not fit the network); ValueError for a broken folder."""
    from stagebench.suite.data.decode import header, lone_class
    from stagebench.suite.worker.image_folder import listed

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
        return len(files), f"{path.name} holds colour images, {graph.name} wants {_wanted(graph)}"
    if len(classes) > graph.classes:
        return len(files), f"{path.name} has {len(classes)} classes, {graph.name} tells {graph.classes} apart"
    return len(files), ""


def _text(path: Path, graph: Graph) -> tuple[int, str]:
    """Return (samples, why they do not fit the network); ValueError for a broken file."""
    if not graph.vocabulary:
        return 0, f"{path.name} is a text, {graph.name} wants images of {_wanted(graph)}; name a set of images"
    if graph.label_shape != graph.input_shape:
        return 0, (
            f"{path.name} is a text, in which every token has a label, {graph.name} wants labels of shape "
            f"{graph.label_shape!r} for {graph.input_shape!r} tokens; name a network with a head over every token"
        )
    tokens, positions = text_files.loaded(str(path)), graph.input_shape[0]
    refused = text_files.refusal(str(path), tokens, positions, min(graph.vocabulary, graph.classes))
    return text_files.windows(len(tokens), positions), refused


def _wanted(graph: Graph) -> str:
    return "a text; name a file of tokens, or python-topics" if graph.vocabulary else _by(graph.input_shape)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
