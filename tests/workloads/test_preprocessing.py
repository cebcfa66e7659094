"""The geometry of the centre crop, and that the one statement of it fits every network."""

import pytest

from stagebench.workloads.catalogue import PHOTOGRAPHS
from stagebench.workloads.networks import by_name


@pytest.mark.parametrize(
    ("size", "scaled"),
    [
        # torchvision.transforms.Resize(256): the smaller edge 256, the other int(256 * long / short)
        ((500, 375), (341, 256)),
        ((375, 500), (256, 341)),
        ((256, 256), (256, 256)),
        ((512, 512), (256, 256)),
        ((300, 200), (384, 256)),
        ((333, 500), (256, 384)),
        ((64, 48), (341, 256)),
        ((4000, 3000), (341, 256)),
        ((1, 1000), (256, 256000)),
    ],
)
def test_the_shorter_side_is_scaled_as_torchvision_s_resize_does(size, scaled):
    assert PHOTOGRAPHS.scaled(*size) == scaled
    short, long = min(size), max(size)
    assert max(scaled) == int(256 * long / short)


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (257, 511), (2048, 1365), (64, 48)])
@pytest.mark.parametrize("crop", [224, 227, 256])
def test_the_crop_stands_in_the_centre_and_within(size, crop):
    left, top, right, bottom = PHOTOGRAPHS.centre(size[0], size[1], crop)
    across, down = (side / float(new) for side, new in zip(size, PHOTOGRAPHS.scaled(*size)))
    assert right - left == pytest.approx(crop * across)
    assert bottom - top == pytest.approx(crop * down)
    # torchvision.transforms.CenterCrop(224) begins at int(round((side - 224) / 2)): half a scaled pixel apart at most
    assert abs((left + right) / 2 - size[0] / 2.0) <= 0.5 * across + 1e-9
    assert abs((top + bottom) / 2 - size[1] / 2.0) <= 0.5 * down + 1e-9
    assert left >= 0
    assert top >= 0
    assert right <= size[0] + 1e-9
    assert bottom <= size[1] + 1e-9


def test_a_crop_as_large_as_the_image_is_all_of_it():
    assert PHOTOGRAPHS.centre(256, 256, 256) == (0.0, 0.0, 256.0, 256.0)


def test_every_network_of_photographs_can_be_cut_from_what_is_scaled():
    for workload in by_name().values():
        if workload.dataset == "imagenet-like":
            _, height, width = workload.graph().input_shape
            assert height == width <= workload.preprocessing.resize, workload.name
