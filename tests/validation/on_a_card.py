"""Everything that wants a GPU, one after the other, into a folder: what docs/gpu.md tells is from here.

    PYTHONPATH=.:tests/conformance python tests/validation/on_a_card.py OUT --minutes 60
    PYTHONPATH=.:tests/conformance python tests/validation/on_a_card.py OUT --only graph --only precisions

The Python that runs it must have PyTorch with CUDA, and stagebench; proofs, conformance and the two plans take every
framework that is found. What has not ended when the time is up is stopped, and what it said so far is kept.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE = 10.0  # seconds between the two signals that stop a check
NATIVE = ("tests/validation/pytorch_native.py", "--device", "cuda", "--network", "resnet50", "--batch", "256")
NATIVE = (*NATIVE, "--precision", "bfloat16", "--rounds", "12")
RESNET = ("--device", "cuda", "--strategy", "single", "--workload", "resnet50", "--tuning", "tuned")
STAGEBENCH = ("-m", "suite.cli")
VERIFY = (*STAGEBENCH, "verify", *RESNET, "--json")
FORMATS = tuple(word for name in ("float32", "tf32", "bfloat16", "float16") for word in ("--precision", name))
FROM_FILES = (*STAGEBENCH, "run", "--adapter", "pytorch", *RESNET, "--batch", "256", "--precision", "bfloat16")
FROM_FILES = (*FROM_FILES, "--data", "imagenet-like", "--readers", "12", "--no-proofs", "--processes", "2")
CHECKS = {  # what Python is given, in order: what takes seconds before what takes minutes
    "eager": (*NATIVE, "--mode", "eager"),
    "graph": (*NATIVE, "--mode", "graph"),
    "profiler": (
        *("tests/validation/stages_vs_profiler.py", "pytorch", "resnet50:256"),
        *("--device", "cuda", "--precision", "bfloat16"),
    ),
    "proofs": (*VERIFY, *FORMATS),
    "replayed": (*VERIFY, "--adapter", "pytorch", "--knob", "cuda_graph=true"),
    "deterministic": (*VERIFY, "--knob", "deterministic=on"),
    "precisions": ("tests/validation/gpu_precisions.py", "resnet50:256", "googlenet:256", "alexnet:1024"),
    "decoded": (
        *(*STAGEBENCH, "data", "check", "imagenet-like", "--readers"),
        *("--adapter", "pytorch", "--device", "cuda", "--knob", "decode=gpu"),
    ),
    "decoding": (
        *(*FROM_FILES, "--knob", "decode=host,gpu"),
        *("--passes", "native,staged,resident,io_only", "-o", "{out}/decoding"),
    ),
    "copies": (*FROM_FILES, "--knob", "copy_stream=on,off", "--passes", "native,resident", "-o", "{out}/copies"),
    "conformance": ("-m", "pytest", "tests/gpu", "-v", "-r", "s", "-p", "no:cacheprovider"),
    "compile": (*NATIVE, "--mode", "compile"),
    "compiled-graph": (*NATIVE, "--mode", "compiled graph"),
    "paper": (*STAGEBENCH, "run", "paper", "--scale", "card", "-o", "{out}/paper"),
    "autotune": (*STAGEBENCH, "run", "autotune", "--scale", "gpu", "-o", "{out}/autotune"),
}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("out", type=Path)
    words.add_argument("--minutes", type=float, default=60.0)
    words.add_argument("--only", action="append", choices=sorted(CHECKS))
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    end, ended = time.monotonic() + 60.0 * asked.minutes, {}
    if shutil.which("nvidia-smi") is None:
        raise SystemExit("there is no nvidia-smi: this machine has no NVIDIA GPU, or not its driver's programs")
    card = subprocess.run(["nvidia-smi"], check=False, capture_output=True, text=True)
    (asked.out / "card.txt").write_text(card.stdout + card.stderr)
    for name in asked.only or CHECKS:
        began = time.monotonic()
        ended[name] = {"ended": run(name, asked.out, end - began), "seconds": round(time.monotonic() - began, 1)}
        print(f"{name}: {ended[name]['ended']} after {ended[name]['seconds']:.0f} s", flush=True)
        (asked.out / "ended.json").write_text(json.dumps(ended, indent=1) + "\n")
    return int(any(each["ended"] != 0 for each in ended.values()))


def run(name, out, seconds):
    """Its exit code, or why there is none."""
    if seconds <= 0:
        return "not begun: the time was up"
    command = [sys.executable, *(word.format(out=out) for word in CHECKS[name])]
    with (out / f"{name}.txt").open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            for by in (signal.SIGTERM, signal.SIGKILL):  # with all that it has started
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, by)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
            return "stopped: the time was up"


if __name__ == "__main__":
    sys.exit(main())
