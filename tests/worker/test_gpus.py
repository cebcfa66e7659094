"""Which GPU is a rank's, on hosts that show all of them, some, or one to each rank; the driver is played."""

import ctypes
import uuid

import pytest

from stagebench.suite.worker import gpus
from stagebench.suite.worker.contract import Unavailable
from tests.support.trainers import setup


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch):
    for name in gpus.CHOSEN:
        monkeypatch.delenv(name, raising=False)


class Driver:
    """libcuda with devices of these numbers visible."""

    def __init__(self, *devices):
        self.devices = devices

    def cuInit(self, flags):  # noqa: N802 - CUDA's names
        return 0 if self.devices else 100

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, device, number):  # noqa: N802
        device._obj.value = self.devices[number]
        return 0

    def cuDeviceGetUuid(self, raw, device):  # noqa: N802
        ctypes.memmove(raw, uuid.UUID(int=device.value).bytes, 16)
        return 0


class DriverOfSlices(Driver):
    """Of the devices with odd numbers: slices of the GPU with the number before."""

    def cuDeviceGetUuid(self, raw, device):  # noqa: N802
        ctypes.memmove(raw, uuid.UUID(int=device.value & ~1).bytes, 16)
        return 0

    def cuDeviceGetUuid_v2(self, raw, device):  # noqa: N802
        return Driver.cuDeviceGetUuid(self, raw, device)


def ranks(*places, **values):
    """The setups of local ranks."""
    return [setup(device="cuda", local_rank=place, **values) for place in places]


@pytest.mark.parametrize(
    ("visible", "own", "values"),
    [
        (2, [[0], [1]], {}),
        (4, [[0, 1], [2, 3]], {"devices": 2}),
        (8, [[0], [1]], {}),
        (2, [[0], [1], [0]], {"share_devices": True}),  # in turns
    ],
)
def test_a_rank_takes_its_own_of_those_that_all_ranks_see(visible, own, values):
    assert [gpus.own_devices(each, visible) for each in ranks(*range(len(own)), **values)] == own


def test_a_rank_that_is_shown_one_takes_that_and_it_is_another_one_s_no_more(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU of the rank")
    found = [gpus.driven(each, Driver(7 + number)) for number, each in enumerate(ranks(0, 1))]
    assert found == [["GPU-00000000-0000-0000-0000-00000000000%d" % number] for number in (7, 8)]


@pytest.mark.parametrize(("place", "devices", "visible"), [(1, 1, 1), (1, 2, 3), (0, 2, 1)])
def test_too_few_are_an_error_with_the_remedy(place, devices, visible):
    [rank] = ranks(place, devices=devices)
    words = "local rank %d wants %d GPU.s. of its own, .* and sees %d; .* share_devices" % (place, devices, visible)
    with pytest.raises(Unavailable, match=words):
        gpus.own_devices(rank, visible)
    with pytest.raises(Unavailable):
        gpus.own_devices(*ranks(place, share_devices=True, devices=visible + 1), visible)


def test_slices_of_a_gpu_are_told_apart_and_without_a_driver_or_on_processors_nobody_drives_one():
    same = "-00000000-0000-0000-0000-00000000000"
    assert gpus.uuids(DriverOfSlices(4, 5, 7)) == ["GPU" + same + "4", "MIG" + same + "5", "MIG" + same + "7"]
    assert gpus.driven(setup(device="cpu"), Driver(7)) == []
    assert gpus.uuids(Driver()) == gpus.driven(*ranks(0), Driver()) == []
