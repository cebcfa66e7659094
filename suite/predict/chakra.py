"""A predicted iteration as an MLCommons Chakra execution trace, which network simulators such as ASTRA-sim take.

A trace is a file for each rank, PREFIX.RANK.et: messages of Google's protocol buffers, each after its length, the first
one GlobalMetadata, the others Nodes (github.com/mlcommons/chakra, schema/protobuf/et_def.proto). The few fields that
are needed are encoded here. Computation has its duration; a collective has its bytes, and how long those take is up to
the simulator.
"""

from pathlib import Path

from stagebench.suite.errors import RequestError
from stagebench.suite.files import write_whole
from stagebench.suite.predict.prediction import timeline
from stagebench.suite.predict.scenario import Scenario
from stagebench.suite.predict.timeline import INPUT, MESSAGE, Span

VERSION = "0.0.4"  # of the schema
COMPUTATION, COLLECTIVE = 4, 7  # NodeType
ALL_REDUCE = 0  # CollectiveCommType
# Fields of Node, and of its AttributeProto.
ID, NAME, TYPE, CTRL_DEPS, DATA_DEPS, START_MICROS, DURATION_MICROS, ATTR = 1, 2, 3, 4, 5, 6, 7, 10
INT64, BOOL = 9, 27


def write(prefix: Path, scenario: Scenario, ranks: int) -> list[Path]:
    """Write PREFIX.0.et and so on, all equal; RequestError for a pipeline, whose ranks differ."""
    if scenario.stages > 1:
        raise RequestError(
            "--chakra writes what one rank does, and the ranks of a pipeline differ; leave stages out, or choose "
            "a training without stages with --workload"
        )
    sizes = {layer.name: layer.bytes / scenario.compression for layer in scenario.layers}
    content, last = _prefixed(_text(1, VERSION)), dict[str, int]()
    for index, span in enumerate(timeline(scenario, ranks).spans):
        content += _prefixed(_node(index, span, last.get(span.lane), sizes))
        last[span.lane] = index
    paths = [prefix.with_name(f"{prefix.name}.{rank}.et") for rank in range(ranks)]
    for path in paths:
        write_whole(path, content)
    return paths


def _node(index: int, span: Span, before: int | None, sizes: dict[str, float]) -> bytes:
    """Encode a span; `before` is the node that precedes it on its device or link."""
    name = " ".join((span.task, *dict.fromkeys(span.layers)))
    parts = [
        _number(ID, index),
        _text(NAME, name),
        _number(TYPE, COLLECTIVE if span.task == MESSAGE else COMPUTATION),
        b"" if before is None else _number(CTRL_DEPS, before),
        *(_number(DATA_DEPS, each) for each in span.after),
        _attribute("is_cpu_op", BOOL, span.lane == INPUT),
    ]
    if span.task == MESSAGE:  # the gradients from its first layer to its last
        names = list(sizes)
        first, last = sorted(names.index(layer) for layer in span.layers)
        sent = round(sum(sizes[name] for name in names[first : last + 1]))
        parts += [_attribute("comm_type", INT64, ALL_REDUCE), _attribute("comm_size", INT64, sent)]
    else:
        micros = (START_MICROS, span.begin), (DURATION_MICROS, span.end - span.begin)
        parts += [_number(field, round(1e6 * seconds)) for field, seconds in micros]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _prefixed(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _text(field: int, value: str | bytes) -> bytes:
    return _varint(field << 3 | 2) + _prefixed(value.encode() if isinstance(value, str) else value)


def _attribute(name: str, kind: int, value: int) -> bytes:
    return _text(ATTR, _text(1, name) + _number(kind, value))
