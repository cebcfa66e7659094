"""Which of PyTorch's ways to compute a layer is the fastest here: tried on the case's own shapes, then kept.

PyTorch multiplies float32 matrices by MKL, which takes twice as long as oneDNN on AMD's processors, and turns 1x1
convolutions of fewer than 16 samples on one thread into such products. An expert tries both on a new machine, and so
does a tuned case when it is built. A way counts only if it gives PyTorch's own output and gradients but for rounding.
"""

import hashlib
import json
import os
import tempfile
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils.flop_counter import register_flop_formula

from suite.worker.contract import AUTO, Setup, chosen
from suite.worker.variables import Variables, arithmetic
from workloads.graph import Graph, Layer

Tensor = Any  # torch's, float32
Run = Callable[[], Sequence[Tensor]]  # computes a layer forward and backward; returns its output and gradients
Attempt = Callable[[Layer, str], Run]  # a layer on random numbers, computed in a way
Choices = Dict[str, Dict[str, Any]]  # "way" and "seconds" by key

# By knob. "torch": as PyTorch has it; "onednn": by oneDNN; "product": by oneDNN too, as a matrix product over pixels.
WAYS = {"products": ("torch", "onednn"), "pointwise": ("torch", "onednn", "product")}
ROUNDS, LEAST_ROUNDS, LIMIT_S = 7, 3, 0.4  # no further round of a shape begins after LIMIT_S, but LEAST_ROUNDS are made
GAIN = 0.95  # a way must take at most such a share of the usual one's time: noise must not choose
ROUNDING = 1e-5  # the norm of a difference over that of PyTorch's own result

MADE: Dict[Tuple[str, str], str] = {}  # choices of this process, by file and key: kept where no file can be written

linear: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # None: this PyTorch has no oneDNN


def by_onednn(x: Tensor, matrix: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Multiply x (rows, in) by a matrix (out, in), transposed, and add the bias; neither needs to be contiguous."""
    return linear(x, matrix, bias, "none", [], "")


if linear is not None:

    @register_flop_formula(linear)
    def product_flops(x: Any, matrix: Any, *_: Any, **__: Any) -> int:
        """Count a product's operations, for the check of multiply-accumulates."""
        return 2 * x[0] * x[1] * matrix[0]


class Product(torch.autograd.Function):
    """`by_onednn` and its backward, two more products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        """Multiply x (rows, in) by a weight (out, in) or (out, in, 1, 1)."""
        ctx.save_for_backward(x, weight)
        return by_onednn(x, weight.view(len(weight), -1), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Return the gradients of x, weight and bias."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            by_onednn(gradient, weight.view(len(weight), -1).t()) if of_x else None,
            # With the weight's own strides: DDP would copy any other gradient into its buckets.
            by_onednn(gradient.t(), x.t()).as_strided(weight.shape, weight.stride()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


class Dense(torch.nn.Linear):
    """torch.nn.Linear by oneDNN."""

    def forward(self, x: Tensor) -> Tensor:
        return Product.apply(x, self.weight, self.bias)


class Pointwise(torch.nn.Conv2d):
    """A 1x1 convolution as a product over pixels; without a copy where memory is channels-last."""

    def forward(self, x: Tensor) -> Tensor:
        samples, channels, height, width = x.shape
        pixels = x.permute(0, 2, 3, 1).reshape(-1, channels)
        y = Product.apply(pixels, self.weight, self.bias)
        return y.view(samples, height, width, -1).permute(0, 3, 1, 2)


def knob_of(layer: Layer) -> Optional[str]:
    """Return the knob that fixes how a layer is computed; None for layers that PyTorch computes in one way."""
    if layer.kind == "dense":
        return "products"
    attrs = layer.attrs
    if layer.kind == "conv" and (attrs["kernel"], attrs["stride"], attrs["pad"], attrs["groups"]) == (1, 1, 0, 1):
        return "pointwise"
    return None


def choose(
    setup: Setup, group: Any, graph: Graph, samples: int, about: str, attempt: Attempt, code: Sequence[str]
) -> Dict[str, str]:
    """Return the way of each layer that has several, by its name; layers that are not named are computed as usual.

    All ranks come here, and rank 0 chooses for all of them: layers that several ranks hold must round alike. `group`
    has `maximum`, by which rank 0 tells the others, or is None. `samples` are those of one forward; `about` names
    what else decides: the adapter and the memory format of images; `code`, the adapter's files that compute layers.
    """
    if setup.device != "cpu" or setup.precision != "float32" or linear is None or not torch.backends.mkldnn.enabled:
        return {}
    kept, ways, known = Kept(setup, code), {}, {}  # type: Kept, Dict[str, str], Dict[str, str]
    for layer in graph.layers:
        knob = knob_of(layer)
        if knob is None:
            continue
        way = chosen(setup, knob, default="torch", tuned=AUTO)
        if way == AUTO:
            shape = "x".join(map(str, (samples, *layer.input_shapes[0])))
            words = (knob, layer.shape[0], shape, "with" if layer.attrs["bias"] else "without", about)
            key = "%s: %d of %s, %s bias, %s" % words
            if key not in known:
                mine = kept.way(key, knob, partial(attempt, layer)) if setup.rank == 0 else "torch"
                number = float(WAYS[knob].index(mine))  # no other rank's is larger
                known[key] = WAYS[knob][int(number if group is None else group.maximum(number))]
            way = known[key]
        ways[layer.name] = way
    if setup.rank == 0:
        kept.write()
    return ways


def by_way(ways: Dict[str, str]) -> Dict[str, List[str]]:
    """Return the layers of each way, for a record's notes."""
    return {way: [name for name in ways if ways[name] == way] for way in sorted(set(ways.values()))}


class Kept:
    """Ways that were chosen before, in the cache: a file for each processor, PyTorch and its settings, and our code."""

    def __init__(self, setup: Setup, code: Sequence[str]) -> None:
        """Read the file; without one, or with a broken one, everything is tried."""
        decisive = arithmetic(os.environ, Variables(["ATEN_", "THP_", "TORCH_"]))
        self._threads = setup.threads
        about = [processor(), torch.__config__.show(), str(torch.__version__), setup.threads, decisive]
        about.extend(digest(path) for path in (__file__, *code))
        name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self._path = os.path.join(cache(), "candidates", "pytorch-%s.json" % name)
        self._found, self._tried = stored(self._path), {}  # type: Choices, Choices

    def way(self, key: str, knob: str, run_of: Callable[[str], Run]) -> str:
        """Return the fastest of a knob's ways; `run_of(way)` makes a run."""
        ways, place = WAYS[knob], (self._path, key)
        if place in MADE:
            return MADE[place]
        way = self._found.get(key, {}).get("way")
        if way not in ways:
            seconds = tried({way: run_of(way) for way in ways}, self._threads)
            best = min(seconds, key=lambda way: seconds[way])
            way = best if seconds[best] <= GAIN * seconds[ways[0]] else ways[0]
            self._tried[key] = {"way": way, "seconds": seconds}
        MADE[place] = str(way)
        return MADE[place]

    def write(self) -> None:
        """Keep what was tried, for later cases; a cache that cannot be written costs them the seconds again."""
        if not self._tried or self._path.startswith("~"):  # a user without a home folder
            return
        folder = os.path.dirname(self._path)
        with suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            handle, written = tempfile.mkstemp(".part", dir=folder)
            try:
                with os.fdopen(handle, "w") as stream:  # read again: another process may have written
                    json.dump(dict(stored(self._path), **self._tried), stream, indent=1, sort_keys=True)
                os.replace(written, self._path)
            except OSError:
                os.unlink(written)


def stored(path: str) -> Choices:
    """Return a file's choices by their keys; none without the file, or if it is broken in any place."""
    try:
        with open(path) as stream:
            read = json.load(stream)
    except (OSError, ValueError):
        return {}
    whole = isinstance(read, dict) and all(isinstance(choice, dict) for choice in read.values())
    return read if whole else {}


def digest(path: str) -> str:
    """Return a digest of a source file; "" if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return ""


def tried(runs: Dict[str, Run], threads: int) -> Dict[str, float]:
    """Return the least seconds of each run, in turns; runs with other results than the first one's are left out."""
    # What else the machine does disturbs processor time less; of several threads it says too little.
    clock = time.process_time if threads == 1 else time.perf_counter
    usual = next(iter(runs.values()))()
    right = {way: run for way, run in runs.items() if agree(run(), usual)}
    seconds = dict.fromkeys(right, float("inf"))
    began = time.perf_counter()
    for number in range(ROUNDS):
        if number >= LEAST_ROUNDS and time.perf_counter() - began > LIMIT_S:
            break
        for way, run in right.items():
            begin = clock()
            run()
            seconds[way] = min(seconds[way], clock() - begin)
    return seconds


def agree(results: Sequence[Tensor], usual: Sequence[Tensor]) -> bool:
    return all(float((a - b).norm()) <= ROUNDING * float(b.norm()) for a, b in zip(results, usual))


def random(shape: Sequence[int], seed: int, layout: Any = torch.contiguous_format) -> Tensor:
    """Return normal numbers that leave torch's own generator, which draws dropout's masks, as it is."""
    drawn = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))
    return drawn.contiguous(memory_format=layout) if len(shape) == 4 else drawn


def processor() -> List[str]:
    """Return what the kernel says of the first processor: vendor, family, model, name and instructions."""
    try:
        with open("/proc/cpuinfo") as stream:
            lines = stream.read().partition("\n\n")[0].splitlines()
    except OSError:
        return [torch.backends.cpu.get_cpu_capability()]
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags")
    return [line for line in lines if line.partition(":")[0].strip() in wanted]


def cache() -> str:
    """Return the folder that suite.files names."""
    named = os.environ.get("STAGEBENCH_CACHE")
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return os.path.expanduser(named or os.path.join(folder, "stagebench"))
