"""The seed of dropout's masks."""

from suite.worker.contract import dropout_seed


def test_every_seed_device_and_layer_has_masks_of_its_own_that_every_framework_takes():
    asked = [(seed, device, layer) for seed in range(20) for device in range(20) for layer in ("", "d6", "d7")]
    found = [dropout_seed(*each) for each in asked]
    assert len(set(found)) == len(asked)
    assert found == [dropout_seed(*each) for each in asked]
    found = [dropout_seed(seed, device) for seed in (0, 1, 2**40, -1) for device in (0, 1, 10**6)]
    assert all(isinstance(each, int) and 0 <= each < 2**31 for each in found)
    assert dropout_seed(1, 0) == 1122690969
