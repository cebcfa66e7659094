"""The built-in networks: exact counts, and arithmetic recomputed from the papers' tables."""

import pytest

from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import BUILT_IN, by_name
from stagebench.workloads.networks.gpt import gpt
from stagebench.workloads.networks.vit import vit
from tests.support.errors import raising

PARAMETERS = {
    "alexnet": 60965224,
    "googlenet": 13378280,
    "resnet50": 25557032,
    "resnet152": 60192808,
    "mnist_small": 402442,
    "mnist_large": 4104202,
    "mnist_stated": 2636554,
    "vit_ti16": 5717416,
    "gpt_char": 834304,
    "gpt2": 124439808,
}


def alexnet_macs():
    """Output width squared x kernels x kernel volume; groups of 2 in conv2, 4 and 5."""
    convolutions = [
        (55, 96, 3 * 11 * 11),
        (27, 256, 48 * 5 * 5),
        (13, 384, 256 * 3 * 3),
        (13, 384, 192 * 3 * 3),
        (13, 256, 192 * 3 * 3),
    ]
    dense = 6 * 6 * 256 * 4096 + 4096 * 4096 + 4096 * 1000
    return sum(width * width * out * volume for width, out, volume in convolutions) + dense


def resnet_macs(*depths):
    """Table 1 of He 2015, the stride on the 3x3 convolution."""
    total, channels, size = 112 * 112 * 64 * 3 * 49, 64, 56
    for width, blocks in zip((64, 128, 256, 512), depths):
        for block in range(blocks):
            before, size = size, size // 2 if block == 0 and width > 64 else size
            total += before**2 * channels * width + size**2 * width * width * 9 + size**2 * width * 4 * width
            if block == 0:
                total += size**2 * channels * 4 * width
            channels = 4 * width
    return total + 2048 * 1000


def googlenet_macs():
    """Table 1 of Szegedy 2014 and its two auxiliary classifiers on 4a and 4d."""
    total = 112 * 112 * 64 * 3 * 49 + 56 * 56 * (64 * 64 + 192 * 64 * 9)
    table = [
        (28, 192, (64, 96, 128, 16, 32, 32)),
        (28, 256, (128, 128, 192, 32, 96, 64)),
        (14, 480, (192, 96, 208, 16, 48, 64)),
        (14, 512, (160, 112, 224, 24, 64, 64)),
        (14, 512, (128, 128, 256, 24, 64, 64)),
        (14, 512, (112, 144, 288, 32, 64, 64)),
        (14, 528, (256, 160, 320, 32, 128, 128)),
        (7, 832, (256, 160, 320, 32, 128, 128)),
        (7, 832, (384, 192, 384, 48, 128, 128)),
    ]
    for size, channels, (one, reduce3, three, reduce5, five, project) in table:
        pointwise = channels * (one + reduce3 + reduce5 + project)
        total += size * size * (pointwise + reduce3 * three * 9 + reduce5 * five * 25)
    for channels in (512, 528):
        total += 4 * 4 * channels * 128 + 2048 * 1024 + 1024 * 1000
    return total + 1024 * 1000


def vit_macs(width, patch, side, blocks, classes):
    """Dosovitskiy 2021, section 3.1: of each block 12 width^2 a token, and two products of all tokens by all."""
    patches = (side // patch) ** 2
    tokens = patches + 1
    block = 12 * tokens * width**2 + 2 * tokens**2 * width
    return patches * 3 * patch**2 * width + blocks * block + width * classes


def gpt_macs(width, context, blocks, vocabulary):
    """As ViT's blocks, and a head for every token."""
    return blocks * (12 * context * width**2 + 2 * context**2 * width) + context * width * vocabulary


MACS = {
    "alexnet": alexnet_macs(),
    "googlenet": googlenet_macs(),
    "resnet50": resnet_macs(3, 4, 6, 3),
    "resnet152": resnet_macs(3, 8, 36, 3),
    "mnist_small": 28 * 28 * 32 * 9 + 14 * 14 * 32 * 64 + 64 * 10,
    "mnist_large": 28 * 28 * 128 * 9
    + 14 * 14 * 256 * 128 * 9
    + 7 * 7 * 512 * 256 * 9
    + 3 * 3 * 512 * 512
    + 512 * 512
    + 512 * 10,
    "mnist_stated": 28 * 28 * 64 * 9
    + 14 * 14 * 128 * 64 * 9
    + 7 * 7 * 256 * 128 * 9
    + 4 * 4 * 512 * 256 * 9
    + 2 * 2 * 512 * 512
    + 512 * 64
    + 64 * 64
    + 64 * 10,
    "vit_ti16": vit_macs(192, 16, 224, 12, 1000),
    "gpt_char": gpt_macs(128, 64, 4, 256),
    "gpt2": gpt_macs(768, 1024, 12, 50257),
}

SHAPES = {
    "alexnet": {"conv1": (96, 55, 55), "pool1": (96, 27, 27), "pool2": (256, 13, 13), "pool5": (256, 6, 6)},
    "googlenet": {
        "pool1": (64, 56, 56),
        "pool2": (192, 28, 28),
        "inception_3b_output": (480, 28, 28),
        "loss1_ave_pool": (512, 4, 4),
        "inception_4e_output": (832, 14, 14),
        "inception_5b_output": (1024, 7, 7),
        "pool5": (1024, 1, 1),
    },
    "resnet50": {
        "conv1": (64, 112, 112),
        "pool1": (64, 56, 56),
        "res2c_relu": (256, 56, 56),
        "res3a_a": (128, 56, 56),
        "res3a_b": (128, 28, 28),
        "res5c_relu": (2048, 7, 7),
        "pool5": (2048, 1, 1),
    },
    "resnet152": {"res3b7_relu": (512, 28, 28), "res4b35_a": (256, 14, 14), "res5c_relu": (2048, 7, 7)},
    "vit_ti16": {
        "tokens": (196, 768),
        "class_token": (197, 192),
        "block1_qkv": (197, 576),
        "block1_attention": (197, 192),
        "block12_fc1": (197, 768),
        "answer": (192,),
    },
    "gpt_char": {"embedding": (64, 128), "block4_qkv": (64, 384), "block1_fc1": (64, 512), "head": (64, 256)},
    "gpt2": {"embedding": (1024, 768), "block12_qkv": (1024, 2304), "block1_fc1": (1024, 3072), "head": (1024, 50257)},
    "mnist_small": {"pool1": (32, 14, 14), "flat": (6272,)},
    "mnist_large": {"pool2": (256, 7, 7), "pool3": (512, 3, 3), "flat": (4608,)},
    "mnist_stated": {"pool3": (256, 4, 4), "pool4": (512, 2, 2), "flat": (2048,)},
}

names = pytest.mark.parametrize("name", sorted(PARAMETERS))


def test_the_catalogue_has_exactly_these_with_sane_optimisers():
    assert set(by_name()) == set(PARAMETERS)
    assert [workload.name for workload in BUILT_IN] == list(by_name())
    for workload in BUILT_IN:
        optimiser = workload.optimiser
        assert optimiser.momentum == 0.9
        assert optimiser.lr > 0
        assert optimiser.reference_batch >= workload.proof_batch >= 1
        assert workload.dataset in ("imagenet-like", "digits", "python-topics")


@names
def test_parameters(name):
    graph = by_name()[name].graph()
    assert graph.name == name
    assert graph.parameter_count == PARAMETERS[name]
    assert graph.gradient_bytes() == 4 * PARAMETERS[name]
    assert graph.gradient_bytes(itemsize=2) == 2 * PARAMETERS[name]


@names
def test_multiply_accumulates(name):
    graph = by_name()[name].graph()
    assert graph.macs == MACS[name]
    assert graph.without_dropout().macs == MACS[name]


def test_published_figures_heads_and_differences_of_frameworks():
    """AlexNet 724 M, GoogLeNet's main branch 1.6 G, ResNet-50 v1.5 4.09 G, ResNet-152 11.5 G."""
    assert (MACS["alexnet"], MACS["resnet50"], MACS["resnet152"]) == (724406816, 4089184256, 11513626624)
    assert 1.5e9 < MACS["googlenet"] < 1.65e9
    heads = by_name()["googlenet"].graph().heads
    assert heads == [("loss1_classifier", 0.3), ("loss2_classifier", 0.3), ("loss3_classifier", 1.0)]
    for name in set(PARAMETERS) - {"googlenet"}:
        assert [head.weight for head in by_name()[name].graph().heads] == [1.0]
    alexnet = {layer.name: layer for layer in by_name()["alexnet"].graph().layers}
    assert [alexnet["conv%d" % i].attrs["groups"] for i in range(1, 6)] == [1, 2, 1, 2, 2]
    assert [alexnet["fc%d_drop" % i].attrs["rate"] for i in (6, 7)] == [0.5, 0.5]
    googlenet = {layer.name: layer for layer in by_name()["googlenet"].graph().layers}
    assert [googlenet[x].attrs["rate"] for x in ("pool5_drop", "loss1_drop_fc", "loss2_drop_fc")] == [0.4, 0.7, 0.7]
    resnet = {layer.name: layer for layer in by_name()["resnet50"].graph().layers}
    assert [resnet["res3a_" + x].attrs["stride"] for x in "abc"] == [1, 2, 1]  # v1.5
    assert [len(by_name()[name].graph().buffers) for name in ("resnet50", "resnet152")] == [2 * 53, 2 * 155]


def test_variants_of_transformers():
    """The mean over patches in place of a class token, and a head with a weight of its own."""
    mean = vit("mean", (3, 224, 224), 16, 192, 3, 12, 1000, pool="mean")
    assert (mean.parameter_count, {layer.name: layer for layer in mean.layers}["block1_qkv"].shape) == (
        5717032,
        (196, 576),
    )
    untied = gpt("untied", 64, 256, 128, 4, 4, tied=False)
    assert (untied.parameter_count, untied.macs) == (867072, MACS["gpt_char"])


def test_another_context_changes_the_products_alone():
    whole = by_name()["gpt2"].graph()
    shorter = whole.with_context(32)
    assert (shorter.name, shorter.input_shape, shorter.label_shape) == ("gpt2@32", (32,), (32,))
    assert shorter.parameters == whole.parameters
    assert shorter.macs == gpt_macs(768, 32, 12, 50257)
    assert len({whole.digest, shorter.digest, whole.with_context(33).digest}) == 3
    again = shorter.with_context(1024)  # the table is the whole one
    assert (again.parameters, again.macs) == (whole.parameters, whole.macs)
    with raising(ValueError, "layers[1]", "'positions'", 1025, 1024):
        whole.with_context(1025)
    with raising(ValueError, "resnet50"):
        by_name()["resnet50"].graph().with_context(32)
    flat = Graph("flat", (4,), 5)
    x = flat.add("flatten", "flatten", (flat.add("embedding", "embedding", ("input",), vocabulary=5, out=3),))
    flat.add_head(flat.add("fc", "dense", (x,), out=5))
    with raising(ValueError, "flat"):
        flat.with_context(3)


@names
def test_shapes(name):
    layers = {layer.name: layer for layer in by_name()[name].graph().layers}
    for layer, shape in SHAPES[name].items():
        assert layers[layer].shape == shape, layer
