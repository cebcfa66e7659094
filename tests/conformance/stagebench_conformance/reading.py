"""What an adapter reads: every reader that it declares delivers the samples that the plain source has."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stagebench_conformance import probe
from stagebench_conformance.base import Conformance
from suite.data.reader_check import Check
from suite.plugins import workloads

SAMPLES = 16


class Reading(Conformance):
    """Needs the framework's environment."""

    @pytest.mark.usefixtures("forked")
    @pytest.mark.parametrize("kind", ["folder", "arrays"])
    def test_every_reader_delivers_the_same_samples(self, kind: str, tmp_path: Path) -> None:
        """Of the files as they stand, and of each record format that holds such a set, packed for it.

        What the machine lacks a library for (`Adapter.unreadable`) is left out here, as it is in plans.
        """
        if not self.it().capabilities.real_data or not self.cases():
            pytest.skip(f"{self.adapter} declares that it reads no data")
        interpreter = self.launch(self.plain(), tmp_path).interpreter
        name = probe.PICTURES if kind == "folder" else "mnist_small"
        source = photographs(tmp_path / "photographs") if kind == "folder" else digits(tmp_path / "digits.npz")
        (tmp_path / "check").mkdir()
        check = Check(source, workloads()[name], SAMPLES, tmp_path / "check")
        found = {each.format: each.problem for each in check.readers(self.it(), interpreter)}
        assert not any(found.values()), found
        assert set(found) == {"files", *(form.name for form in self.it().capabilities.formats if kind in form.kinds)}


def photographs(folder: Path) -> Path:
    """JPEG files of two classes, wide and tall, of coloured squares: shifts and swapped channels show."""
    colours = np.random.RandomState(0)
    for index in range(SAMPLES):
        size = (5, 7, 3) if index % 2 else (7, 5, 3)
        pixels = np.kron(colours.randint(0, 256, size), np.ones((12, 12, 1))).astype(np.uint8)
        path = folder / f"class{index // 8}" / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=95)
    return folder


def digits(path: Path) -> Path:
    """An array file of noise."""
    noise = np.random.RandomState(1)
    images = noise.randint(0, 256, (SAMPLES, 28, 28)).astype(np.uint8)
    np.savez(path, images=images, labels=noise.randint(0, 10, SAMPLES))
    return path
