"""The request for a prediction: the keys of a scenario's TOML file, of `--set KEY=VALUE` and of the options."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from stagebench.suite.analysis.links import links
from stagebench.suite.contracts.case import ALL_REDUCE
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.networks import read as read_network
from stagebench.suite.plan.overrides import is_path, value_of
from stagebench.suite.plan.text import values_of
from stagebench.suite.plugins import workloads
from stagebench.suite.predict.collectives import FREE, KnownLink, Link, Network, of_fit, positive
from stagebench.suite.predict.from_run import asked_of
from stagebench.suite.predict.prediction import ASSUMED, Answer, Asked
from stagebench.suite.predict.scenario import (
    EVEN,
    MODEL_ERROR,
    SCHEDULES,
    Jitter,
    LayerCost,
    Layers,
    Scenario,
    by_arithmetic,
    joined,
)
from stagebench.suite.results.records import COMM
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import text_of
from stagebench.suite.text import chosen, counted, known, shown

OF_A_RUN = ("layers", "batch", "rate", "spread", "read_rate", "readers", "jitter")  # keys whose values a run knows
PIPELINE: dict[str, Any] = {
    "schedule": "fused",
    "interference": 0.0,
}  # its gradients leave last, when nothing computes any more


def _list(value: Any) -> Any:
    """Read `2,4`, 8 and "all" as lists."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",")]
    return value if isinstance(value, list) else [value]


class Request(BaseModel):
    """A training and the machines that it is predicted for; None: not known."""

    model_config = ConfigDict(extra="forbid")

    # A training on one device. A run folder knows all of it: of a run, `workload` is the only network to predict.
    workload: str | None = None  # a name, or a network's file
    layers: Path | None = None  # a JSON list of layers with their seconds, instead of workload and rate
    batch: int | None = None  # samples per device
    rate: float | None = None  # samples/s of one device alone
    spread: float | None = None  # relative half width of the rate's interval
    read_rate: float | None = None  # samples/s of one reader; None: input is never waited for
    readers: int | None = None  # of each device
    jitter: float | None = None  # standard deviation of a rank's iterations over their mean
    fixed_share: float | None = None  # of forward and backward at `batch`: seconds that another batch does not change

    # How it is distributed.
    global_batch: int | None = None  # samples of all devices together (strong scaling); None: each has `batch`
    ranks: Annotated[list[Annotated[int, Field(ge=1)]], BeforeValidator(_list)] = Field([2, 4, 8, 16, 32])
    schedule: Annotated[list[str] | None, BeforeValidator(_list)] = None  # names, or all; None: wfbp, or the run's
    compression: float = 1.0  # times fewer bytes than float32
    stages: int = 1  # devices that hold one network together, as a pipeline
    microbatches: int | None = None  # equal pieces of a pipeline's batch; None: one, or as many as the run's

    # The link.
    alpha: float | None = None  # seconds to begin a message
    beta: float | None = None  # seconds a byte
    gamma: float = 0.0  # seconds to add up a byte
    algorithm: str | None = None  # of the exchange; None: ring, or the run's
    ranks_per_node: int = 1
    node_alpha: float | None = None  # within a node; None: as between nodes
    node_beta: float | None = None
    servers: int = 1  # of the algorithm `server`
    comm: Path | None = None  # a run of `stagebench comm` that has measured the link
    backend: str | None = None  # the backend whose link, if `comm` has several

    def check(self, run: Path | None) -> None:
        """Raise RequestError for a key without another one that gives it a meaning."""
        nodes, server = self.ranks_per_node > 1, self.algorithm == "server"
        pairs = {
            ("node_alpha and node_beta", "ranks_per_node"): ((self.node_alpha, self.node_beta) != (None, None), nodes),
            ("algorithm = hierarchical", "ranks_per_node"): (self.algorithm == "hierarchical", nodes),
            ("servers", "algorithm = server"): (self.servers != 1, server),
            ("microbatches", "stages"): (self.microbatches is not None, self.stages > 1),
            ("backend", "comm"): (self.backend is not None, self.comm is not None),
            ("readers", "read_rate"): (self.readers is not None and run is None, self.read_rate is not None),
            ("gamma", "alpha and beta"): (self.gamma != 0.0, self.alpha is not None),
        }
        for (key, other), (given, meaningful) in pairs.items():
            if given and not meaningful:
                raise RequestError(f"{key} has no meaning without {other}; give both, or neither")
        for pair in (("--alpha", "--beta"), ("node_alpha", "node_beta")):
            present = [name for name in pair if getattr(self, name.lstrip("-")) is not None]
            if len(present) == 1:
                missing = pair[1 - pair.index(present[0])]
                raise RequestError(f"{present[0]} is given without {missing}; give both, or none")
        if self.comm and self.alpha is not None:
            raise RequestError("--comm and --alpha both define the link; leave one of them out")

    def link(self, network: Network) -> KnownLink | None:
        """Return the link between nodes, given or measured; None if the request does not define it."""
        if self.comm:
            return of_comm(RunFolder.open(self.comm, COMM), self.backend, network)
        if self.alpha is None or self.beta is None:
            return None
        return KnownLink(Link(self.alpha, self.beta, self.gamma), 0.0, "link: as given")

    def answers(self, run: Path | None) -> tuple[list[Answer], list[str]]:
        """Return the predictions of each training, and why others cannot be made; RequestError if none can."""
        trainings, refusals = self.trainings(run)
        every = [
            Answer(one, self._schedules(one), [size for size in self.ranks if not one.refusal(size)])
            for one in trainings
        ]
        answers = [answer for answer in every if answer.sizes and answer.schedules]
        fused = [one.asked.label for one in every if not one.schedules]
        refusals += [f"{label}: its gradients leave after backward, fused." for label in fused]
        refusals += [
            f"{one.label} on {counted(size, 'rank')}: {refusal}."
            for one in trainings
            for size in self.ranks
            if (refusal := one.refusal(size))
        ]
        if not answers:
            raise RequestError(f"nothing can be predicted: {' '.join(refusals)}")
        return answers, refusals

    def _schedules(self, asked: Asked) -> list[str]:
        names = self.schedule
        if names is None or names == ["all"]:
            return list(SCHEDULES) if names and not asked.pipelines else [asked.scenario.schedule]
        for name in names:
            if name not in SCHEDULES:
                raise RequestError(f"there is no schedule {name!r}; {known(name, SCHEDULES)}, or all")
        return [name for name in names if name == asked.scenario.schedule] if asked.pipelines else names

    def trainings(self, run: Path | None) -> tuple[list[Asked], list[str]]:
        """Return the trainings to predict, of the run or of the numbers, and why others of the run cannot be."""
        self.check(run)
        within = None if self.node_alpha is None else Link(self.node_alpha, self.node_beta or 0.0, self.gamma)
        network = Network(FREE, within, self.ranks_per_node, self.algorithm or "ring", self.servers)
        link = self.link(network)
        if link and self.ranks_per_node > 1:
            network = replace(network, within=within or link.within)
        if run is None:
            return [self._with_batches(self._described(network, link))], []
        for name in OF_A_RUN:
            if getattr(self, name) is not None:
                raise RequestError(f"{name} is known from {run}; leave one of them out")
        trainings, refusals = asked_of(RunFolder.open(run), self.workload, link)
        other = network if self.algorithm or self.ranks_per_node > 1 else None
        return [self._with_batches(self._changed(training, other, link)) for training in trainings], refusals

    def _with_batches(self, asked: Asked) -> Asked:
        """Return the training with the batch of all devices, and the layers' fixed share, that were given."""
        if self.fixed_share is not None:
            if not 0 <= self.fixed_share <= 1:
                raise RequestError(f"fixed_share = {self.fixed_share} should be a share, from 0 to 1")
            layers = tuple(replace(layer, fixed=self.fixed_share) for layer in asked.scenario.layers)
            sources = tuple(source for source in asked.sources if not source.startswith("batch: "))
            words = f"batch: {self.fixed_share:.0%} of forward and backward do not change with it, as given"
            asked = replace(asked, scenario=asked.scenario.but(layers=layers), sources=(*sources, words))
        if self.global_batch is not None and self.global_batch != asked.together:
            positive("global batch", self.global_batch)
            asked = asked.changed([f"batch: {self.global_batch:,} of all devices together"])
            asked = replace(asked, together=self.global_batch)
            if not any(source.startswith("batch: ") for source in asked.sources):
                asked = replace(asked, sources=(*asked.sources, ASSUMED))
        return asked

    def _described(self, network: Network, link: KnownLink | None) -> Asked:
        """Return the training that numbers describe; `network` lacks the link between ranks."""
        if self.layers and (self.workload is not None or self.rate is not None):
            raise RequestError("layers replaces workload and rate; leave one or the other out")
        needed = {
            "--workload, a network (or --set layers=FILE, instead of --workload and --rate)": self.layers
            or self.workload,
            "--rate, the samples/s of one device alone": self.layers or self.rate,
            "--batch, the samples of an iteration on one device": self.batch,
            "--alpha and --beta of the link (or --comm with a measured one)": link,
        }
        missing = [words for words, value in needed.items() if value is None]
        if missing or link is None or self.batch is None:
            raise RequestError(f"to predict, give {'; '.join(missing)}; or name a run folder to learn from")
        positive("batch", self.batch)
        if self.spread is not None and not 0 <= self.spread < 1:
            raise RequestError(f"spread = {self.spread} should be a share, from 0 to below 1")
        if self.layers:
            label, layers, source = str(self.layers), from_file(self.layers), f"layers: {self.layers}"
        else:
            assert self.workload is not None
            assert self.rate is not None
            positive("rate", self.rate)
            if is_path(self.workload):
                workload = read_network(Path(self.workload))
            else:
                workload = workloads()[chosen("workload", [self.workload], workloads())[0]]
            label = workload.name
            layers = by_arithmetic(workload.graph(), self.batch / self.rate, self.batch)
            source = (
                "layers: the rate's time divided by multiply-accumulates, twice as much for backward as for forward"
            )
        if self.read_rate is not None:
            positive("read rate", self.read_rate)
        scenario = Scenario(
            batch=self.batch,
            layers=layers,
            network=replace(network, between=link.link),
            read=self.batch / self.read_rate if self.read_rate else 0.0,
            readers=1 if self.readers is None else self.readers,
            jitter=EVEN if self.jitter is None else Jitter.normal(self.jitter),
            compute_error=self.spread or 0.0,
            link_error=link.error,
            model_error=MODEL_ERROR,
        )
        pieces = 1 if self.microbatches is None else self.microbatches
        pipeline: dict[str, Any] = PIPELINE if self.stages > 1 else {}
        scenario = scenario.but(compression=self.compression, stages=self.stages, microbatches=pieces, **pipeline)
        return Asked(f"{label} batch {self.batch}", scenario, (source, link.source), {})

    def _changed(self, asked: Asked, network: Network | None, link: KnownLink | None) -> Asked:
        """Return a training of a run with the changes that were asked for; `link` may be the one it was fitted to."""
        own, changed, error = asked.scenario.network, [], asked.scenario.link_error
        if link and link.source not in asked.sources:
            own, error = replace(own, between=link.link), link.error
            changed.append(link.source)
        if network:
            own = replace(network, between=own.between, within=network.within or own.within)
            nodes = f", {own.ranks_per_node} ranks a node" if own.ranks_per_node > 1 else ""
            changed.append(f"exchange: {own.algorithm}{nodes}")
        if self.compression != 1:
            changed.append(f"gradients: {self.compression:g} times smaller")
        pipelines = asked.pipelines
        parts: dict[str, Any] = {"network": own, "link_error": error, "compression": self.compression}
        if self.stages > 1 and pipelines:
            if not (asked.link_known or link):
                raise RequestError(
                    f"the speed of the link by which pipelines of {asked.label} exchange gradients is not known; give "
                    "--alpha and --beta, or --comm, or leave stages out"
                )
            pipelines = replace(pipelines, stages=self.stages)
            count = pipelines.pieces(self.stages) if self.microbatches is None else Fraction(self.microbatches)
            positive("number of microbatches", float(count))
            changed.append(f"pipelines of {self.stages} stages and {count} microbatch{'es' if count != 1 else ''}")
            asked = replace(asked, pipelines=replace(pipelines, microbatches=count, by_stage=False, known={}))
            parts["holds_back"] = True
        elif self.stages > 1:
            changed.append(f"a pipeline of {self.stages} stages, without the fitted schedule and interference")
            parts |= {"stages": self.stages, "microbatches": self.microbatches or 1, **PIPELINE}
        return asked.changed(changed, **parts) if changed else asked


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


def request(file: Path | None, options: Mapping[str, Any], sets: list[str]) -> Request:
    """Join a scenario's file, the options and `--set`, of which later ones win; RequestError names the wrong key."""
    values = _of_file(file) if file else {}
    places = dict.fromkeys(values, str(file))
    given = {key: value for key, value in options.items() if value is not None}
    values |= given
    places |= {key: f"--{key}" for key in given}
    for option in sets:
        key, _, text = (part.strip() for part in option.partition("="))
        if not key or not text:
            raise RequestError(f"--set {option!r} should read KEY=VALUE, such as algorithm=tree")
        values[key], places[key] = value_of(text), f"--set {option}"
    try:
        return Request.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            words = f"{places[key]}: a scenario has no key {shown(key)}; {known(key, Request.model_fields)}"
            raise RequestError(words) from None
        raise RequestError(f"{places[key]}: {key} = {shown(values[key])}: {first['msg']}") from None


def _of_file(file: Path) -> dict[str, Any]:
    text = text_of(file, "give a TOML file with a scenario", kind=RequestError)
    try:
        values = values_of(text.decode())
    except ValueError as error:
        raise RequestError(f"{file} is no TOML of a scenario: {error}") from error
    for key, value in values.items():
        if isinstance(value, str) and (key in ("layers", "comm") or (key == "workload" and is_path(value))):
            values[key] = str(file.parent / value)  # a path is relative to the scenario's file
    return values


Amount = Annotated[float, Field(le=1e15)]  # beyond it sums are no numbers any more


class LayerRow(BaseModel):
    """A layer in a file, as the rows of `stagebench show --json` have it; other keys are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    layer: str
    forward_s: Amount
    backward_s: Amount
    bytes: Amount
    activation_bytes: Amount = 0.0


def from_file(path: Path) -> Layers:
    """Read a JSON list of LayerRow in forward order; RequestError names the place of what is wrong."""
    text = text_of(path, "give a JSON list of layers", kind=RequestError)
    try:
        rows = TypeAdapter(list[LayerRow]).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RequestError(
            f"{path}, {place or 'top'}: {first['msg']}; every layer needs layer, forward_s, backward_s and bytes"
        ) from error
    if not rows:
        raise RequestError(f"{path} has no layer; give a JSON list of layers")
    if not any(row.forward_s or row.backward_s for row in rows):
        raise RequestError(f"{path}: its layers take no time at all; give their seconds")
    try:
        return joined(
            LayerCost(row.layer, row.forward_s, row.backward_s, row.bytes, row.activation_bytes) for row in rows
        )
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from error
