"""The peak rates of a rank's devices, measured: a matrix product for their arithmetic, a copy for their memory.

Model FLOP utilisation and the roofline are compared with these figures. So all ranks measure at the same time, on the
cores that trained. On CPUs NumPy's BLAS is the yardstick of every framework alike: it is the machine that is measured.
The trainer measures what NumPy cannot (bfloat16, GPUs), see `Trainer.yardstick`.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from stagebench.suite.worker.contract import Call, Setup
from stagebench.suite.worker.messages import Peaks

SIDES = (512, 8192)  # numbers of a matrix's side: the first to be tried, the last
BYTES = (32 << 20, 1 << 30)  # bytes of a copy: the first to be tried, the last; more than caches hold
LONG_S = 0.005  # seconds of a call that can be timed
LONGEST_S = 0.1  # seconds of a call that is not made larger: a product that is twice as wide takes eight times as long
SHARE = 0.1  # of a pass's seconds, where that is less
LEVEL = 1.02  # a larger call that does not do so much more in a second shows that the rate has levelled off
REPEAT_S = 0.1  # seconds of calls of that size; the quickest counts


class Yardstick(NamedTuple):
    """The work that measures all of a rank's devices at once; `Trainer.synchronize` follows each call."""

    library: str
    product: Callable[[int], Call]  # of n: a call that multiplies two matrices of n x n numbers on each device
    copy: Callable[[int], Call]  # of n: a call that copies n bytes on each device


def measure(yardstick: Yardstick, devices: int, synchronize: Callable[[], None], seconds: float = 1.0) -> Peaks:
    """Measure the peaks, for some tenths of a second; for less if a pass takes less than a second.

    A product of n x n matrices has 2 n^3 operations, a copy reads and writes its bytes.
    """
    longest = min(LONGEST_S, SHARE * seconds)
    flop_per_s = _best(yardstick.product, SIDES, lambda side: 2.0 * devices * side**3, synchronize, longest)
    bytes_per_s = _best(yardstick.copy, BYTES, lambda size: 2.0 * devices * size, synchronize, longest)
    return Peaks(flop_per_s, bytes_per_s, yardstick.library)


def _best(
    work: Callable[[int], Call],
    sizes: Tuple[int, int],
    amount: Callable[[int], float],
    synchronize: Callable[[], None],
    longest: float,
) -> float:
    """Return the most that was done in a second.

    The size doubles until the rate of calls levels off, or a call takes `longest` seconds and can be timed.
    """
    (size, last), before = sizes, 0.0
    while True:
        call = work(size)
        _seconds(call, synchronize)  # the first may start threads, or touch memory for the first time
        shortest = _seconds(call, synchronize)
        rate = amount(size) / max(shortest, 1e-9)
        level = shortest >= LONG_S and before and rate < LEVEL * before
        if level or shortest >= max(longest, LONG_S) or size >= last:
            break
        before = rate if shortest >= LONG_S else 0.0
        size *= 2
    end = time.perf_counter() + min(REPEAT_S, longest)
    while time.perf_counter() < end:
        shortest = min(shortest, _seconds(call, synchronize))
    return max(before, amount(size) / shortest)


def _seconds(call: Call, synchronize: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - begin


def on_devices(
    library: str,
    precision: str,
    devices: Sequence[Any],
    put: Callable[[Any, str, Any], Any],
    product: Callable[[Any], Any],
    copy: Callable[[Any], Any],
    wait: Callable[[List[Any]], Any] = list,
) -> Yardstick:
    """Return a framework's yardstick.

    `put(array, dtype, device)` makes a tensor on the device, for `product` to multiply with itself, or for `copy`.
    `wait` returns when such results are complete, if `Trainer.synchronize` does not know of them.
    """

    def everywhere(array: Any, dtype: str, work: Callable[[Any], Any]) -> Call:
        values = [put(array, dtype, device) for device in devices]
        return lambda: wait([work(value) for value in values])

    def numbers(side: int) -> Any:
        # Constant numbers flip fewer transistors: a GPU at its power cap would multiply more of them a second.
        drawn = np.random.RandomState(1).rand(SIDES[0], SIDES[0]).astype(np.float32)
        return np.tile(drawn, (-(-side // SIDES[0]),) * 2)[:side, :side]

    return Yardstick(
        library,
        lambda side: everywhere(numbers(side), precision, product),
        lambda size: everywhere(np.ones(size // 4, np.int32), "int32", copy),
    )


def on_cores(setup: Setup) -> Optional[Yardstick]:
    """Return NumPy's yardstick; None for what NumPy cannot do."""
    if setup.device != "cpu" or setup.precision not in ("float32", "float64"):
        return None
    devices = setup.devices
    everybody = setup.devices * setup.threads
    pool = ThreadPoolExecutor(everybody)  # NumPy releases the interpreter's lock while it multiplies and copies

    def product(side: int) -> Call:
        matrix = np.random.RandomState(1).rand(side, side).astype(setup.precision)
        results = [np.empty_like(matrix) for _ in range(devices)]
        return lambda: list(pool.map(lambda result: np.dot(matrix, matrix, out=result), results))

    def copy(size: int) -> Call:
        shares = [np.ones(devices * size // everybody, dtype=np.uint8) for _ in range(everybody)]
        places = [np.empty_like(share) for share in shares]
        return lambda: list(pool.map(np.copyto, places, shares))

    return Yardstick(f"NumPy {np.__version__}", product, copy)
