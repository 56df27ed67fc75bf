"""What a doctor looks at on a machine: threads, devices, memory, disks, the hub, and what a PDF needs."""

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from valuelens._check import Dubious

GIB = 1 << 30
_TIGHT, _FULL = GIB, 100 << 20
_SLOW = 1.3
_BUDGET = 0.25
"""Seconds of a round of the small work, at most two of each kind."""


def threads() -> str:
    """How long small work takes on torch's threads beside one thread: the slowdown that a script of one's own meets.

    Measured in this process alone, in a second. Processes that compute at the same time lose more, for their threads
    compete; to measure that would take several imports of torch.
    """
    import torch

    count = torch.get_num_threads()
    ratio = _slowdown(count) if count > 1 else 1.0
    several = (
        f"on torch's {count} threads small models take {ratio:.1f} times as long as on one, in one process"
    )
    told = several if count > 1 else "torch uses one thread"
    found = f"{os.cpu_count()} cores; {told}; valuelens uses one a process"
    if ratio > _SLOW:
        todo = "in scripts of your own: OMP_NUM_THREADS=1 or torch.set_num_threads(1)"
        raise Dubious(f"{found}; several at once lose more; {todo}")
    return found


def _slowdown(count: int) -> float:
    """Quotient of the fastest times of a small step, both measured twice in turn."""
    import torch

    best = dict.fromkeys((count, 1), float("inf"))
    try:
        for _ in range(2):
            for many in best:
                torch.set_num_threads(many)
                best[many] = min(best[many], _step_seconds())
    finally:
        torch.set_num_threads(count)
    return best[count] / best[1]


def _step_seconds() -> float:
    """Mean time of a forward and a backward pass as small as those of the demo."""
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 31, 9, generator=generator)
    w = torch.randn(9, 9, generator=generator, requires_grad=True)
    _small_step(x, w)
    started, done = time.perf_counter(), 0
    while not done or time.perf_counter() - started < _BUDGET:
        _small_step(x, w)
        done += 1
    return (time.perf_counter() - started) / done


def _small_step(x: Any, w: Any) -> None:
    import torch

    stream = x
    for _ in range(4):
        stream = stream + torch.softmax(stream @ w @ x.mT, -1) @ x
    torch.autograd.grad(stream.square().mean(), w)


def devices() -> str:
    """What can compute; a CUDA build of torch that sees no GPU is told with torch's own reason."""
    import torch

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = ["cpu", *(f"cuda:{k} ({torch.cuda.get_device_name(k)})" for k in range(count))]
    found += ["mps"] if torch.backends.mps.is_available() else []
    if torch.version.cuda and not count:
        why = f": {str(said[0].message).splitlines()[0]}" if said else ""
        todo = "all is computed on the cpu; update the driver, or install torch's CPU build"
        raise Dubious(f"torch was built for CUDA {torch.version.cuda} and sees no GPU{why}; {todo}")
    return ", ".join(found)


def memory() -> str:
    """Memory that is there for a process."""
    free, whole = available_memory(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{free / GIB:.1f} of {whole / GIB:.1f} GiB available"
    if free < 2 * GIB:
        raise Dubious(f"{found}; 2 GiB are advisable: close something, or use --jobs 1")
    return found


def available_memory() -> int:
    """Bytes that the system would still give, within the limit of a container."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = whole
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = (_lines(Path("/sys/fs/cgroup", name)) for name in ("memory.max", "memory.current"))
    if limit and used and limit[0].isdecimal():
        free = min(free, int(limit[0]) - int(used[0]) + _reclaimable())
    return free


def _reclaimable() -> int:
    """Bytes that a container is charged for files which it read, and that the system takes back when it needs them."""
    for line in _lines(Path("/sys/fs/cgroup/memory.stat")):
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def temporary() -> str:
    """The folder for temporary files, which child processes and downloads need."""
    return writable(Path(tempfile.gettempdir()), "set TMPDIR to another folder")


def here() -> str:
    """The current folder, where `--out` usually points."""
    try:
        return writable(Path.cwd(), "name another folder by --out")
    except OSError as error:
        raise Dubious(str(error)) from None


def hub() -> str:
    """The cache of models of the hub, and whether the hub is asked at all."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    try:
        room = writable(cache, "set HF_HOME to another folder")
    except OSError as error:
        raise Dubious(str(error)) from None
    if constants.HF_HUB_OFFLINE:
        raise Dubious(
            f"HF_HUB_OFFLINE is set: only models in {cache} can be used; unset it to download others"
        )
    return f"{cache} {room}"


def writable(folder: Path, todo: str) -> str:
    """That a folder, or the nearest above it that exists, can be written and has room.

    Args:
        folder: Need not exist.
        todo: Otherwise.

    Raises:
        OSError: It cannot be written, or is full.
        Dubious: It is nearly full.
    """
    there = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".valuelens-") as inside:
            Path(inside, "probe").write_bytes(b"x")
    except OSError as error:
        raise OSError(f"{folder} cannot be written ({error.strerror or error}); {todo}") from None
    free = shutil.disk_usage(there).free
    room = f"{free / GIB:.1f} GiB" if free >= GIB else f"{free >> 20} MiB"
    if free < _FULL:
        raise OSError(f"{folder} is full ({room} free); make room, or {todo}")
    if free < _TIGHT:
        raise Dubious(f"{folder} is nearly full ({room} free); make room, or {todo}")
    return f"writable, {room} free"


def pdf() -> str:
    """What `report --pdf` needs: weasyprint, and the system library pango below it.

    Raises:
        LookupError: One of them is missing.
    """
    try:
        found = version("weasyprint")
    except PackageNotFoundError:
        raise LookupError("report --pdf: pip install 'valuelens[pdf]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module("weasyprint")
    except (OSError, ImportError) as error:
        pango = "install pango (Debian, Ubuntu: apt-get install libpango-1.0-0 libpangoft2-1.0-0; brew install pango)"
        todo = "pip install --force-reinstall weasyprint" if isinstance(error, ImportError) else pango
        raise LookupError(f"report --pdf: {todo}; found {(str(error).splitlines() or [''])[0]}") from None
    return f"weasyprint {found} and pango"


LOOKS: dict[str, Callable[[], str]] = {
    "threads": threads,
    "devices": devices,
    "memory": memory,
    "temporary folder": temporary,
    "current folder": here,
    "hub": hub,
    "pdf": pdf,
}
"""Everything, in the order of the answer."""
