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
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from stagebench.adapters.pytorch import kernels
from stagebench.suite.worker.contract import AUTO, Group, Setup, chosen
from stagebench.suite.worker.variables import Variables, arithmetic
from stagebench.workloads.graph import Graph, Layer

Run = Callable[[], Sequence[Tensor]]  # computes a layer forward and backward; returns its output and gradients
Attempt = Callable[[Layer, str], Run]  # a layer on random numbers, computed in a way
Ways = Dict[str, str]  # by a layer's name; layers that are not named are computed as usual
Choices = Dict[str, Dict[str, Any]]  # "way" and "seconds" by key

# By knob. "torch": as PyTorch has it; "onednn": by oneDNN; "product": by oneDNN too, as a matrix product over pixels.
WAYS = {"products": ("torch", "onednn"), "pointwise": ("torch", "onednn", "product")}
ROUNDS, LEAST_ROUNDS, LIMIT_S = 7, 3, 0.4  # no further round of a shape begins after LIMIT_S, but LEAST_ROUNDS are made
GAIN = 0.95  # a way must take at most such a share of the usual one's time: noise must not choose
ROUNDING = 1e-5  # the norm of a difference over that of PyTorch's own result
CPU_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags")

MADE: Dict[Any, str] = {}  # choices of this process, by (file, key): kept where no file can be written


def knob_of(layer: Layer) -> Optional[str]:
    """Return the knob that fixes how a layer is computed; None for layers that PyTorch computes in one way."""
    if layer.kind in ("dense", "qkv"):
        return "products"
    attrs = layer.attrs
    if layer.kind == "conv" and (attrs["kernel"], attrs["stride"], attrs["pad"], attrs["groups"]) == (1, 1, 0, 1):
        return "pointwise"
    return None


def choose(
    setup: Setup, group: Optional[Group], graph: Graph, samples: int, about: str, attempt: Attempt, code: Sequence[str]
) -> Ways:
    """Return the way of each layer that has several.

    All ranks come here, and rank 0 chooses for all of them: layers that several ranks hold must round alike. By the
    `group` rank 0 tells the others. `samples` are those of one forward; `about` names what else decides: the adapter
    and the memory format of images; `code`, the adapter's files that compute layers.
    """
    usable = setup.device == "cpu" and setup.precision == "float32" and torch.backends.mkldnn.enabled
    if not usable or kernels.linear is None:
        return {}
    kept = Kept(setup, code)
    ways: Ways = {}
    known: Dict[str, str] = {}  # by key
    for layer in graph.layers:
        knob = knob_of(layer)
        if knob is None:
            continue
        way = chosen(setup, knob, default="torch", tuned=AUTO)
        if way == AUTO:
            shape = "x".join(map(str, (samples, *layer.input_shapes[0])))
            words = (
                knob,
                layer.shape[-1 if knob == "products" else 0],
                shape,
                "with" if layer.attrs["bias"] else "without",
                about,
            )
            key = "%s: %d of %s, %s bias, %s" % words
            if key not in known:
                mine = kept.way(key, knob, partial(attempt, layer)) if setup.rank == 0 else "torch"
                number = float(WAYS[knob].index(mine))  # no other rank's is larger
                if group is not None:
                    number = group.maximum(number)
                known[key] = WAYS[knob][int(number)]
            way = known[key]
        ways[layer.name] = way
    if setup.rank == 0:
        kept.write()
    return ways


def by_way(ways: Ways) -> Dict[str, List[str]]:
    """Return the layers of each way, for a record's notes."""
    return {way: [name for name in ways if ways[name] == way] for way in sorted(set(ways.values()))}


class Kept:
    """Ways that were chosen before, in the cache: a file for each processor, PyTorch and its settings, and our code."""

    def __init__(self, setup: Setup, code: Sequence[str]) -> None:
        """Read the file; without one, or with a broken one, everything is tried."""
        self._threads = setup.threads
        decisive = arithmetic(os.environ, Variables(["ATEN_", "THP_", "TORCH_"]))
        about = [processor(), torch.__config__.show(), str(torch.__version__), setup.threads, decisive]
        for path in (__file__, kernels.__file__, *code):
            content = b""
            with suppress(OSError), open(path, "rb") as stream:
                content = stream.read()
            about.append(hashlib.sha256(content).hexdigest())
        name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        # The folder that stagebench.suite.files names.
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        cache = os.environ.get("STAGEBENCH_CACHE") or os.path.join(caches, "stagebench")
        self._path = os.path.join(os.path.expanduser(cache), "candidates", f"pytorch-{name}.json")
        self._found = stored(self._path)
        self._tried: Choices = {}

    def way(self, key: str, knob: str, run_of: Callable[[str], Run]) -> str:
        """Return the fastest of a knob's ways; `run_of(way)` makes a run."""
        place = (self._path, key)
        if place not in MADE:
            usual, *others = WAYS[knob]
            way = self._found.get(key, {}).get("way")
            if way not in WAYS[knob]:
                seconds = tried({way: run_of(way) for way in (usual, *others)}, self._threads)
                way = min(seconds, key=lambda way: seconds[way])
                if seconds[way] > GAIN * seconds[usual]:
                    way = usual
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


def tried(runs: Dict[str, Run], threads: int) -> Dict[str, float]:
    """Return the least seconds of each run, in turns; runs with other results than the first one's are left out."""
    # What else the machine does disturbs processor time less; of several threads it says too little.
    clock = time.process_time if threads == 1 else time.perf_counter
    usual = next(iter(runs.values()))()
    seconds = {}
    for way, run in runs.items():
        pairs = zip(run(), usual)
        if all(float((ours - theirs).norm()) <= ROUNDING * float(theirs.norm()) for ours, theirs in pairs):
            seconds[way] = float("inf")
    began = time.perf_counter()
    for number in range(ROUNDS):
        if number >= LEAST_ROUNDS and time.perf_counter() - began > LIMIT_S:
            break
        for way in seconds:
            begin = clock()
            runs[way]()
            seconds[way] = min(seconds[way], clock() - begin)
    return seconds


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
    return [line for line in lines if line.partition(":")[0].strip() in CPU_FIELDS]
