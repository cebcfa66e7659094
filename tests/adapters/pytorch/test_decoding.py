"""What decodes on the device, on a CPU: torchvision where it is installed, and Pillow in its place."""

import sys
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from stagebench.adapters.pytorch import base, decoding
from stagebench.adapters.pytorch.decoding import Decoder, File, Files, decoder_on, packed
from stagebench.suite.worker.contract import Unavailable, Unsupported
from stagebench.suite.worker.sources import ArraySource, FolderSource
from stagebench.suite.worker.threaded import batches_of_indices
from stagebench.workloads.graph import Graph
from tests.support.errors import raising
from tests.support.pictures import ODD, drawn

SHAPE = (3, 112, 112)
CPU = torch.device("cpu")
ON_THE_HOST = {
    *("smaller than the crop.png", "of four inks.jpg", "of three colours.jpg"),
    *("a palette.png", "transparent.png", "a ribbon.jpg"),
}


def by_pillow(files):
    try:
        images = [np.array(Image.open(BytesIO(file.numpy().tobytes())).convert("RGB")) for file in files]
    except OSError as error:
        raise RuntimeError(str(error)) from error
    return [torch.from_numpy(image).permute(2, 0, 1) for image in images]


@pytest.fixture(params=["torchvision", "Pillow"])
def decode(request, monkeypatch):
    """Decodes on the CPU; a trainer's `decode = "gpu"` takes it."""
    found = by_pillow
    if request.param == "torchvision":
        try:
            found = decoder_on(CPU)
        except Unavailable as error:
            pytest.skip(str(error))
    monkeypatch.setattr(base, "decoder_on", lambda device: found)
    return found


def odd(folder, *names):
    """A source of these of the odd pictures, in this order."""
    for number, name in enumerate(names):
        place = folder / "odd" / f"class{number}" / name
        place.parent.mkdir(parents=True)
        ODD[name].save(place, keep_rgb=name == "of three colours.jpg")  # JPEGs know luminance and chroma otherwise
    return FolderSource(str(folder / "odd"), (3, 224, 224))


def levels_off(source, pixels, indices):
    """How far uint8 (samples, height, width, 3) are from the plain source's."""
    true = source.photographs.levels(np.stack([source.sample(index)[0] for index in indices]))
    return np.abs(pixels.numpy().transpose(0, 3, 1, 2) - true)


@pytest.mark.parametrize("name", ODD)
def test_every_picture_has_the_plain_sources_pixels(tmp_path, decode, name):
    source = odd(tmp_path, name)
    sample, label = Files(source).sample(0)
    assert (isinstance(sample, File), label) == (name not in ON_THE_HOST, 0)
    off = levels_off(source, Decoder(source.photographs, decode, CPU)(packed([sample])), [0])
    assert off.max() < 1.01
    assert off.mean() < 0.2


def test_pictures_of_many_sizes_and_kinds_keep_their_order(tmp_path, decode, monkeypatch):
    source = odd(tmp_path, *ODD)
    batch = packed([Files(source).sample(index)[0] for index in range(len(ODD))])
    together = Decoder(source.photographs, decode, CPU)(batch)
    assert levels_off(source, together, range(len(ODD))).max() < 1.01
    asked = []
    monkeypatch.setattr(decoding, "TOGETHER", 400 * 1000)
    one_by_one = Decoder(source.photographs, lambda files: asked.append(len(files)) or decode(files), CPU)(batch)
    assert asked == [2, 1, 1], "the large one is larger than what is taken together, and comes alone"
    torch.testing.assert_close(one_by_one, together, rtol=0, atol=0)


@pytest.mark.parametrize(("tuning", "readers"), [("default", 2), ("tuned", 0), ("tuned", 2)])
def test_files_come_in_order_with_the_views_pixels(trainer, folder, seen, decode, tuning, readers):
    drawn(20, 90, 120).save(folder / "ants" / "2.jpg")
    source = FolderSource(str(folder), SHAPE)
    view = seen(source)
    ours = trainer(readers=readers, batch=4, tuning=tuning, decode="gpu")
    ours.open_input(view)
    wanted, levels = batches_of_indices(view, ours.setup), source.photographs.levels
    for _ in range(5):  # two epochs
        batch, indices = ours.as_numpy(ours.next_batch()), next(wanted)
        assert batch.labels.tolist() == [view.sample(i)[1] for i in indices]
        assert (batch.inputs.dtype, batch.inputs.flags.c_contiguous) == (np.float32, True)
        off = np.abs(levels(batch.inputs) - levels(np.stack([view.sample(i)[0] for i in indices])))
        assert off.max() < 1.01
        assert off.mean() < 0.2
    words = "which only read files; decoded by nvJPEG (torchvision) and scaled on the GPU"
    assert ours._reader.words == f"DataLoader, {readers} processes, {words}"


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
def test_they_are_placed_like_any_batch(trainer, folder, seen, decode, precision, layout):
    graph = Graph("flat", SHAPE, 2)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", ("input",)),), out=2))
    placed = []
    for where in ("host", "gpu"):
        ours = trainer(readers=0, batch=3, memory_format=layout, precision=precision, decode=where)
        ours.build(
            graph, {"out.weight": np.zeros((2, np.prod(SHAPE)), np.float32), "out.bias": np.zeros(2, np.float32)}
        )
        ours.open_input(seen(FolderSource(str(folder), SHAPE)))
        read = ours.next_batch()
        placed.append(ours.to_device(read))
        again = ours.to_device(ours.as_numpy(read))  # as the pass on resident batches has them
        torch.testing.assert_close(again.inputs, placed[-1].inputs)
    by_host, by_device = placed
    assert by_device.inputs.dtype == getattr(torch, precision)
    assert by_device.inputs.is_contiguous(memory_format=getattr(torch, layout + "_format" * (layout == "contiguous")))
    assert by_device.labels.tolist() == by_host.labels.tolist()
    assert (by_device.inputs - by_host.inputs).abs().max() < 2.02 / 57, "two levels of 255, in standard deviations"


def test_an_unreadable_file_is_named_by_its_reader(trainer, folder, seen, decode):
    for path in folder.glob("*/*.jpg"):
        path.write_bytes(b"not a picture")
    ours = trainer(readers=1, decode="gpu")
    ours.open_input(seen(FolderSource(str(folder), SHAPE)))
    with raising(OSError, ".jpg"):
        ours.next_batch()


def test_the_one_damaged_file_of_a_batch_is_named_when_it_is_decoded(trainer, folder, seen, decode):
    damaged = folder / "bees" / "3.jpg"
    damaged.write_bytes(damaged.read_bytes()[:-200])
    ours = trainer(readers=0, batch=10, decode="gpu")
    ours.open_input(seen(FolderSource(str(folder), SHAPE)))
    with pytest.raises(OSError, match=r"^cannot decode .*bees/3\.jpg: .*host"):
        ours.next_batch()


@pytest.mark.parametrize("files", [1, 2])
def test_a_full_gpu_is_no_damaged_file(tmp_path, files):
    def crowded(files):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    source = odd(tmp_path, "upright.jpg", "grey.jpg")
    batch = packed([Files(source).sample(index)[0] for index in range(files)])
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"^CUDA out"):
        Decoder(source.photographs, crowded, CPU)(batch)


def answering(*statuses):
    """A decoder on a GPU whose nvJPEG gives one answer after the other, and None where it decodes."""
    left = list(statuses)

    def decode(files):
        answer = left.pop(0)
        if answer is not None:
            raise RuntimeError(f"Failed to decode batch: {answer}\nException raised from decode_images")
        return by_pillow(files)

    return decode


@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        ((5, None), None, ""),
        ((5, 5), torch.cuda.OutOfMemoryError, r"^nvJPEG is out of memory: Failed to decode batch: 5$"),
        (
            (3, 3),
            OSError,
            r"^cannot decode .*upright\.jpg: Failed to decode batch: 3; replace it, move it out of the set",
        ),
        (
            (10, 10),
            OSError,
            r"^cannot decode .*upright\.jpg: Failed to decode batch: 10; replace it, move it out of the set",
        ),
        ((6, 6), RuntimeError, r"^cannot decode .*upright\.jpg: Failed to decode batch: 6$"),
    ],
)
def test_nvjpeg_s_answer_tells_a_full_gpu_from_a_damaged_file(tmp_path, monkeypatch, answers, error, said):
    freed = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(True))
    source = odd(tmp_path, "upright.jpg")
    batch = packed([Files(source).sample(0)[0]])
    decoder = Decoder(source.photographs, answering(*answers), CPU)
    if error is None:
        assert decoder(batch).shape[0] == 1
    else:
        with pytest.raises(error, match=said) as caught:
            decoder(batch)
        assert type(caught.value) is error
    assert freed == [True] * (answers[0] == 5)


def test_what_fails_for_no_single_file_is_reported_as_it_is(tmp_path):
    def together(files):
        if len(files) > 1:
            raise RuntimeError("an illegal memory access")
        return by_pillow(files)

    source = odd(tmp_path, "upright.jpg", "grey.jpg")
    batch = packed([Files(source).sample(index)[0] for index in (0, 1)])
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Decoder(source.photographs, together, CPU)(batch)


def test_a_set_without_files_is_refused(trainer, tmp_path, seen, decode):
    np.savez(tmp_path / "noise.npz", images=np.eye(8, dtype=np.uint8)[None].repeat(4, 0), labels=np.arange(4))
    ours = trainer(decode="gpu")
    with raising(Unsupported, "noise.npz"):
        ours.open_input(seen(ArraySource(str(tmp_path / "noise.npz"), (1, 8, 8))))


def refusing(files, mode, device):
    raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support\nException raised from")


@pytest.mark.parametrize(
    ("module", "reported"),
    [
        (None, "wants torchvision: "),
        (
            SimpleNamespace(ImageReadMode=SimpleNamespace(RGB=3), decode_jpeg=refusing),
            "not compiled with nvJPEG support;",
        ),
    ],
)
def test_what_is_missing_is_reported_with_the_remedy(monkeypatch, module, reported):
    monkeypatch.setitem(sys.modules, "torchvision", module)
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    with pytest.raises(Unavailable) as caught:
        decoder_on(CPU)
    assert reported in str(caught.value)
    assert str(caught.value).endswith(
        f"; install the torchvision that goes with torch {torch.__version__}, or use decode = 'host'"
    )
