"""A predicted iteration as Chakra execution traces, read back as protocol buffers are laid down to be."""

import pytest

from stagebench.suite.errors import RequestError
from stagebench.suite.predict import chakra
from stagebench.suite.predict.collectives import Link, Network
from stagebench.suite.predict.prediction import timeline
from stagebench.suite.predict.scenario import LayerCost, Scenario

LAYERS = tuple(LayerCost(f"layer{at}", 0.001 * (at + 1), 0.002 * (at + 1), 4000.0 * at) for at in range(4))


def scenario(**changes):
    return Scenario(8, LAYERS, Network(Link(1e-5, 1e-8)), "wfbp", h2d=0.001, update=0.002, read=0.001).but(**changes)


def varint(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def fields(data):
    """Of one message: the values of every field, by number."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found.setdefault(key >> 3, []).append(value)
    return found


def messages(data):
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        yield fields(data[at : at + size])
        at += size


def attributes(node):
    read = [fields(each) for each in node[10]]
    return {each[1][0].decode(): next(value[0] for kind, value in each.items() if kind != 1) for each in read}


def test_every_rank_has_the_graph_and_the_command_writes_those_of_the_most_ranks(tmp_path, stagebench):
    paths = chakra.write(tmp_path / "trace", scenario(compression=2.0), 3)
    assert [path.name for path in paths] == ["trace.0.et", "trace.1.et", "trace.2.et"]
    first, *nodes = messages(paths[0].read_bytes())
    assert first == {1: [b"0.0.4"]}
    line = timeline(scenario(compression=2.0), 3)
    assert [node[1][0] for node in nodes] == list(range(len(line.spans)))
    collectives = {node[2][0].decode(): attributes(node) for node in nodes if node[3] == [7]}
    sizes = {"message layer3": 6000, "message layer2": 4000, "message layer1": 2000}
    assert {name: each["comm_size"] for name, each in collectives.items()} == sizes
    last: dict[str, int] = {}  # node of each lane
    for node, span in zip(nodes, line.spans, strict=True):
        if node[3] == [4]:
            assert node[7][0] == pytest.approx(1e6 * (span.end - span.begin), abs=1)
        assert node.get(5, []) == list(span.after)
        assert all(each < node[1][0] for each in (*node.get(4, []), *node.get(5, [])))
        assert node.get(4, []) == ([last[span.lane]] if span.lane in last else [])
        last[span.lane] = node[1][0]
    assert sorted(last) == ["device", "input", "link"]
    assert [node[2][0] for node in nodes if attributes(node)["is_cpu_op"]] == [b"reading"]
    assert paths[1].read_bytes() == paths[0].read_bytes()
    words = "predict --workload mnist_small --batch 8 --rate 900 --alpha 1e-5 --beta 1e-9 --ranks 2,3 --chakra"
    assert stagebench(*words.split(), str(tmp_path / "asked")).code == 0
    assert len(list(tmp_path.glob("asked.*.et"))) == 3


def test_chakra_reads_it_itself(tmp_path):
    reason = "its reader is not installed: pip install git+https://github.com/mlcommons/chakra"
    schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason=reason)
    reader = pytest.importorskip("chakra.src.third_party.utils.protolib", reason=reason)
    path, _ = chakra.write(tmp_path / "trace", scenario(), 2)
    spans, names = timeline(scenario(), 2).spans, {value: name for name, value in schema.NodeType.items()}
    with reader.openFileRd(path) as file:
        metadata, node, found = schema.GlobalMetadata(), schema.Node(), []
        assert reader.decodeMessage(file, metadata)
        while reader.decodeMessage(file, node):
            found.append((names[node.type], node.duration_micros, list(node.data_deps)))
            node = schema.Node()
    assert metadata.version == chakra.VERSION
    assert found == [
        ("COMM_COLL_NODE", 0, list(span.after))
        if span.task == "message"
        else ("COMP_NODE", round(1e6 * (span.end - span.begin)), list(span.after))
        for span in spans
    ]


def test_one_message_for_all_has_all_bytes_and_a_pipeline_is_refused(tmp_path):
    (path, _) = chakra.write(tmp_path / "trace", scenario(schedule="fused"), 2)
    (node,) = [node for node in messages(path.read_bytes()) if node.get(3) == [7]]
    assert attributes(node) == {"is_cpu_op": 0, "comm_type": 0, "comm_size": 24000}
    with pytest.raises(RequestError, match="leave stages"):
        chakra.write(tmp_path / "trace", scenario(stages=2, schedule="fused"), 2)
