"""Parameters in shares, as DTensors: `fsdp` (FSDP2, fully_shard) and `tensor_parallel` (parallelize_module)."""

import warnings
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Sequence, Set

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

from stagebench.adapters.pytorch.replica import ReplicaTrainer, SharedTrainer
from stagebench.adapters.pytorch.segments import Segments
from stagebench.adapters.pytorch.token_shares import ALL, SHARE, TokenShares
from stagebench.suite.worker.contract import Adam, Batch, LayerTimes, Setup, Unsupported
from stagebench.suite.worker.trainer import Arrays, Notes
from stagebench.workloads.graph import Graph, Layer, size

GROUP = 8 << 20  # bytes of parameters that travel together, or a single layer's that has more


class FSDP(ReplicaTrainer):
    """Groups of layers are gathered when they are needed; their gradients are summed up in shares."""

    contiguous_weights = True  # what it cuts must be

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = setup.tuned and isinstance(setup.optimiser, Adam)  # torch 2.13's fused SGD takes no DTensor

    def step_alone(self, batch: Batch) -> None:
        raise Unsupported("under 'fsdp' a rank holds a share of the parameters and cannot compute without the others")

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("under 'fsdp' a layer's weights have to be gathered first, with a group of others")

    def notes(self) -> Notes:
        return dict(super().notes(), fsdp=f"fully_shard, {self._groups} groups of layers")

    def _wrap(self) -> None:
        mesh = init_device_mesh(self._device.type, (self.setup.world,))
        groups: List[List[nn.Module]] = []
        nets = self._net.nets if isinstance(self._net, Segments) else [self._net]
        shared = [layer for net in nets for layer in net.shared]
        for net in nets:
            room = 0
            for layer in net.layers:  # neighbours are joined until a group is full; a segment is computed again alone
                size = sum(tensor.numel() * tensor.element_size() for tensor in layer.parameters())
                if not size or layer in shared:  # the root's, which stays whole from forward to backward
                    continue
                if room < size:
                    groups.append([])
                    room = GROUP
                groups[-1].append(layer)
                room -= size
        self._groups = len(groups) + bool(shared)
        # A dense layer's tokens are a view, and no layer writes into tokens.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        for group in groups:
            fully_shard(group, mesh=mesh)
        fully_shard(self._net, mesh=mesh)


class TensorParallel(SharedTrainer):
    """Dense layers are cut over all ranks, unless another layer shares their weight; the others are whole on each.

    Of a pair (`pairs`), the first is cut by its outputs and the second by its inputs, as in Megatron-LM: the ranks sum
    up the second's outputs in the forward, and what flows back to the first's input in the backward. A layer without a
    partner is cut by its outputs, which all ranks gather. All ranks are given the same batch, so that layers without a
    share compute the same everywhere and exchange nothing. With the knob `sequence` some compute shares of the tokens:
    a pair's two sums become a gathering of its input, and a sum of which each rank keeps its tokens.
    """

    has_candidates = False  # a DTensor is for torch's own operators alone
    # Set by `build`.
    _by_heads: Set[str]  # layers whose rows are in the order (ranks, 3, heads of a rank, d)
    _described: str
    _macs: int

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = False  # torch 2.13's fused optimisers take no DTensor together with other tensors

    def gradients(self) -> Arrays:
        return self._in_order(super().gradients())

    def parameters(self) -> Arrays:
        return self._in_order(super().parameters())

    def macs(self) -> int:
        """Return the multiply-accumulates as counted before the cut: a rank's attentions have their share of heads."""
        return self._macs

    def notes(self) -> Notes:
        return dict(super().notes(), tensor_parallel=self._described)

    def _wrap(self) -> None:
        self._macs = super().macs()
        world = self.setup.world
        shares = TokenShares(self._graph, world, self.setup.knobs.get("sequence") == "on")
        styles = self._chosen_styles(shares)
        for name, parameter in self._net.trainable():
            if name.rpartition(".")[0] in self._by_heads:  # a rank's queries, keys and values become neighbours
                rows = parameter.detach().unflatten(0, (3, world, -1)).transpose(0, 1)
                parameter.data.copy_(rows.flatten(0, 2))

        mesh = init_device_mesh(self._device.type, (world,))
        numbers = 0  # of a sample
        trained: Set[str] = set()  # values to which a gradient flows back
        for node in self._graph.layers:
            if node.roles or trained.intersection(node.inputs):
                trained.add(node.name)
            style = styles.get(node.name)
            if style is None:
                continue
            numbers += given_numbers(node, style, world, node.inputs[0] in trained)
            layer = self._net.made[node.name]
            layer.register_forward_pre_hook(lambda layer, inputs: narrowed(*inputs))
            parallelize_module(layer, mesh, style)
            if len(node.shape) == 1:  # the next layer may write into what it is given, which is a read-only view
                layer.register_forward_hook(lambda layer, inputs, output: output.clone())
        numbers += shares.apply(self._net, mesh, styles, trained)
        self._exchanged_bytes = numbers * self.setup.batch * self._crosses.itemsize + shares.sum_up(self._net, mesh)

    def _chosen_styles(self, shares: TokenShares) -> Dict[str, Any]:
        """Return how each dense layer is cut, None if not at all."""
        made = self._net.made
        dense = [name for name, layer in made.items() if isinstance(layer, nn.Linear) and layer not in self._net.shared]
        styles: Dict[str, Any] = {name: shares.columns(name, output_layouts=ALL) for name in dense}
        ways = dict.fromkeys(dense, "by columns")
        self._by_heads = set()
        for pair in pairs(self._graph, dense):
            both = (pair.first, pair.second)
            if pair.divided % self.setup.world == 0:
                styles.update(zip(both, (shares.columns(pair.first), shares.rows(pair.second))))
                ways.update(dict.fromkeys(both, "in pairs by columns and rows"))
                if pair.of_heads:
                    self._by_heads.add(pair.first)
            elif pair.of_heads:
                styles.update(dict.fromkeys(both))
                ways.update(dict.fromkeys(both, f"whole around attentions of {pair.divided} heads"))
        counted = ", ".join(f"{count} {way}" for way, count in Counter(ways.values()).items())
        self._described = f"parallelize_module, dense layers: {counted or 'none'}"
        if shares.computing:
            self._described += f"; {len(shares.computing)} other layers on shares of the tokens"
        return styles

    def _in_order(self, tensors: Arrays) -> Arrays:
        """Return whole tensors with canonical rows: (ranks, 3, ...) to (3, ranks, ...)."""
        for name, rows in tensors.items():
            if name.rpartition(".")[0] in self._by_heads:
                by_rank = rows.reshape(self.setup.world, 3, -1, *rows.shape[1:])
                tensors[name] = by_rank.swapaxes(0, 1).reshape(rows.shape)
        return tensors


def given_numbers(node: Layer, style: Any, world: int, trained: bool) -> int:
    """Return how many numbers of a sample a rank gives for a dense layer; `trained`: a gradient flows to its input."""
    tokens, entering, leaving = size(node.shape[:-1]), node.input_shapes[0][-1], node.shape[-1]
    if isinstance(style, RowwiseParallel):
        return tokens * leaving + tokens // world * leaving * (style.output_layouts == (SHARE,))
    columns = -(-leaving // world) * (style.output_layouts == (ALL,))  # of uneven shares, the smaller are padded
    return tokens * (entering * trained + columns) + tokens // world * entering * (style.input_layouts == (SHARE,))


class Pair(NamedTuple):
    """Two dense layers, and the number of independent pieces of the values between them."""

    first: str
    second: str
    divided: int  # the heads of an attention between them, or the width
    of_heads: bool


def pairs(graph: Graph, dense: Sequence[str]) -> List[Pair]:
    """Pair these layers where only elementwise layers and one attention are between them (Shoeybi 2019, section 3)."""
    layers = {layer.name: layer for layer in graph.layers}
    readers = Counter(name for layer in graph.layers for name in layer.inputs)
    readers.update(head.layer for head in graph.heads)
    free, found = set(dense), []
    for second in graph.layers:
        if second.name not in free:
            continue
        first, heads = second.inputs[0], 0
        while readers[first] == 1 and first in layers and first not in free:
            layer = layers[first]
            if layer.kind == "attention" and not heads:
                heads = layer.attrs["heads"]
            elif not layer.elementwise or layer.draws_random:
                break
            first = layer.inputs[0]
        if readers[first] == 1 and first in free:
            found.append(Pair(first, second.name, heads or layers[first].shape[-1], heads > 0))
            free -= {first, second.name}
    return found


def narrowed(x: Tensor) -> Tensor:
    """Return a layer's input in autocast's type, if it is on: what flows back crosses in that type, too."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
