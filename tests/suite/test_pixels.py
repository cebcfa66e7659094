"""What the comparison of readers sees: pixels, channels, labels, samples, order."""

import numpy as np

from suite.data.reader_check import DECODED, EXACT, Bounds, Samples, compare, nearest

STREAM = np.random.RandomState(0)
TRUE = Samples(STREAM.randint(0, 256, (8, 3, 6, 6)).astype(np.float32), np.arange(8) % 3)


def changed(
    order: list[int] | None = None, images: np.ndarray | None = None, labels: np.ndarray | None = None
) -> Samples:
    chosen = list(range(8)) if order is None else order
    return Samples(TRUE.images[chosen] if images is None else images, TRUE.labels[chosen] if labels is None else labels)


def test_the_same_in_any_order_is_right_unless_an_order_was_asked_for():
    turned = [3, 1, 0, 2, 7, 6, 5, 4]
    found = compare(changed(turned), TRUE, DECODED)
    assert (found.mean, found.most, found.wrong_labels, found.missing, found.problem) == (0.0, 0.0, 0, 0, "")
    assert compare(changed(turned), TRUE, DECODED, order=turned).problem == ""
    assert compare(changed(turned), TRUE, DECODED, order=list(range(8))).problem.startswith("samples come in another")


def test_decoders_may_round_and_no_more():
    assert compare(changed(images=TRUE.images + 0.49), TRUE, DECODED).problem == ""
    assert "pixels differ by 0.51 on the average" in compare(changed(images=TRUE.images + 0.51), TRUE, DECODED).problem
    one = TRUE.images.copy()
    one[3, 1, 2, 2] += 5
    assert "5 at most" in compare(changed(images=one), TRUE, DECODED).problem
    assert compare(changed(images=one), TRUE, Bounds(6.0, float("inf"), "why")).problem == ""
    assert compare(changed(images=TRUE.images + 0.002), TRUE, EXACT).problem
    assert compare(changed(images=TRUE.images * np.nan), TRUE, DECODED).problem, "no number is no pixel"


def test_channels_in_the_wrong_order_have_a_name():
    told = compare(changed(images=TRUE.images[:, ::-1]), TRUE, DECODED).problem
    assert told.endswith("by 0 with the channels reversed: it delivers BGR")
    assert "BGR" not in compare(changed(images=np.roll(TRUE.images, 1, axis=3)), TRUE, DECODED).problem


def test_labels_and_lost_samples_are_counted():
    wrong = compare(changed(labels=(TRUE.labels + (np.arange(8) < 3)) % 3), TRUE, DECODED)
    assert (wrong.wrong_labels, wrong.problem) == (3, "3 of 8 labels are wrong")
    lost = compare(changed([0, 0, 2, 3, 4, 5, 6, 6]), TRUE, DECODED)
    assert (lost.missing, lost.problem) == (2, "2 of 8 samples did not come in the first epoch")


def test_images_of_another_shape_are_not_compared():
    found = compare(changed(images=TRUE.images[..., 1:]), TRUE, DECODED)
    assert found.problem == "delivers images of (3, 6, 5), not of (3, 6, 6)"


def test_the_nearest_is_found_by_single_precision_over_large_images():
    images = STREAM.randint(0, 256, (12, 3, 96, 96)).astype(np.float32)
    images[1] = images[0]
    images[1, 0, :8, :8] = 255 - images[0, 0, :8, :8]  # as much as a corner tells them apart
    order = STREAM.permutation(12)
    rounded = images[order] + STREAM.uniform(-0.5, 0.5, images.shape).astype(np.float32)
    assert nearest(rounded, images).tolist() == order.tolist()


def test_bounds_in_words():
    assert str(DECODED) == "mean 0.5, most 4"
    assert str(Bounds(6.0, float("inf"), "it scales by area")) == "mean 6: it scales by area"
