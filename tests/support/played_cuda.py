"""CUDA as far as setting it goes, for PyTorch's tests where there is none."""

import contextlib

import pytest
import torch

SWITCHES = (
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
    (torch.utils.deterministic, "fill_uninitialized_memory"),
)


@contextlib.contextmanager
def gpus(count):
    """So many; all switches are on before, and put back after. (To monkeypatch, torch's are no attributes.)"""
    before = [getattr(where, name) for where, name in SWITCHES]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        try:
            for where, name in SWITCHES:
                setattr(where, name, True)
            yield
        finally:
            for (where, name), value in zip(SWITCHES, before):
                setattr(where, name, value)
