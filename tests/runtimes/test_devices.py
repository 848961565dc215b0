"""Device memory, with a driver that is played."""

from types import SimpleNamespace

import pynvml
import pytest

from tests.runtimes.fakes import serving
from trtgate.errors import InvalidMeasurementError
from trtgate.runtimes import devices, server
from trtgate.runtimes.devices import used_bytes, wait_until_free

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def played(monkeypatch, *readings: tuple[int, ...]) -> None:
    """Give these readings one after the other, the last one for ever."""
    left = list(readings)

    def read() -> tuple[int, ...]:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(devices, "used_bytes", read)
    monkeypatch.setattr(server, "used_bytes", read)


def test_machine_without_a_driver_has_no_devices(monkeypatch):
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert used_bytes() == ()


def test_every_device_is_read(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(used=handle * GIB))
    assert used_bytes() == (0, GIB)


def test_memory_that_comes_back_in_time_is_waited_for(monkeypatch):
    played(monkeypatch, (8 * GIB,), (5 * GIB,), (GIB,))
    assert wait_until_free((GIB,), 10.0) == ()


def test_memory_that_stays_is_told_in_bytes(monkeypatch):
    played(monkeypatch, (8 * GIB, GIB))
    assert wait_until_free((GIB, GIB), 0.0) == (7 * GIB,)


def test_server_counts_what_was_taken_since_its_start(tmp_path, monkeypatch):
    played(monkeypatch, (GIB, GIB), (3 * GIB, 2 * GIB))
    taken = []

    def use() -> None:
        with serving({}, tmp_path, stop_deadline_s=0.3) as running:
            taken.append(running.memory_bytes())

    with pytest.raises(InvalidMeasurementError, match="3072 MiB of device memory did not come back"):
        use()
    assert taken == [3 * GIB]
