"""What a measurement ran on: driver, CUDA, GPUs, kernel and packages, or the plain statement that there is no GPU."""

import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pynvml

from trtgate import __version__
from trtgate.evidence.digests import digest_files
from trtgate.record import Record, sha256

PACKAGES = (
    "torch",
    "tensorrt",
    "tensorrt-llm",
    "vllm",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "triton",
    "flashinfer-python",
)


class Gpu(Record):
    """One device as the driver reports it."""

    name: str
    uuid: str
    memory_bytes: int
    compute_capability: str
    mig: bool | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    throttle_reasons: int | None
    ecc: bool | None


class Platform(Record):
    """The machine; `gpu_note` says why there are no devices where there are none."""

    driver: str | None
    cuda_driver: str | None
    gpus: tuple[Gpu, ...]
    gpu_note: str
    kernel: str
    machine: str
    cpu: str
    cpu_count: int
    memory_bytes: int
    container: str | None
    python: str
    trtgate: str
    packages: dict[str, str]

    @property
    def title(self) -> str:
        """The machine in a few words, as costs and releases name it."""
        if self.gpus:
            return f"{len(self.gpus)} x {self.gpus[0].name}, driver {self.driver}"
        return f"cpu: {self.cpu}, {self.cpu_count} cores"


class ModelFile(Record):
    """One file of the model folder."""

    path: str
    size_bytes: int
    sha256: str


class ModelIdentity(Record):
    """Which model exactly; a hub id or built-in size has no files and is identified by its name."""

    path: str
    files: tuple[ModelFile, ...]
    sha256: str


def read_platform() -> Platform:
    """Ask the driver, the kernel and the package metadata; never fails for want of a GPU."""
    driver, cuda_driver, gpus, note = _read_gpus()
    return Platform(
        driver=driver,
        cuda_driver=cuda_driver,
        gpus=gpus,
        gpu_note=note,
        kernel=platform.release(),
        machine=platform.machine(),
        cpu=_cpu_name(),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        container=_container(),
        python=platform.python_version(),
        trtgate=__version__,
        packages=_packages(),
    )


def identify_model(path: str, *, rehash: bool = False) -> ModelIdentity:
    """Hash every file of a model folder in name order; a path that is no folder is taken as a name.

    Digests of large files are remembered by path, size, time and inode; `rehash` reads them all again.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return ModelIdentity(path=path, files=(), sha256=sha256(path.encode()))
    found = digest_files([file for file in sorted(folder.rglob("*")) if file.is_file()], rehash=rehash)
    files = tuple(
        ModelFile(path=str(file.relative_to(folder)), size_bytes=file.stat().st_size, sha256=digest)
        for file, digest in found.items()
    )
    listing = "".join(f"{file.sha256}  {file.path}\n" for file in files)
    return ModelIdentity(path=path, files=files, sha256=sha256(listing.encode()))


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _read_gpus() -> tuple[str | None, str | None, tuple[Gpu, ...], str]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, None, (), f"no NVIDIA driver: {error}"
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        cuda = f"{version // 1000}.{version % 1000 // 10}"
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        gpus = tuple(_read_gpu(handle) for handle in handles)
        return driver, cuda, gpus, "" if gpus else "the driver reports no devices"
    except pynvml.NVMLError as error:
        return None, None, (), f"the NVIDIA driver does not answer: {error}"
    finally:
        pynvml.nvmlShutdown()


def _read_gpu(handle: object) -> Gpu:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    mig = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    ecc = _ask(pynvml.nvmlDeviceGetEccMode, handle)
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        compute_capability=f"{major}.{minor}",
        mig=None if mig is None else bool(mig[0]),
        sm_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        max_sm_clock_mhz=_ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        throttle_reasons=_ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        ecc=None if ecc is None else bool(ecc[0]),
    )


def _ask(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml is untyped
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _container() -> str | None:
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    return "kubernetes" if "KUBERNETES_SERVICE_HOST" in os.environ else None
