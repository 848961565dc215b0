from pathlib import Path

import pytest

from tests.candidates import platform
from tests.releases.test_store import sealed
from trtgate.errors import IncompatibleError, IntegrityError, NotEligibleError
from trtgate.evidence.environment import Gpu
from trtgate.releases.rollback import compare_platforms, find_way_back

GPU = Gpu(
    name="NVIDIA H200",
    uuid="GPU-1",
    memory_bytes=1 << 37,
    compute_capability="9.0",
    mig=None,
    sm_clock_mhz=None,
    max_sm_clock_mhz=None,
    throttle_reasons=None,
    ecc=None,
)


def test_the_way_back_leads_to_the_release_before(tmp_path: Path) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    store.switch("promote", first, "passed")
    store.switch("promote", second, "passed")
    way = find_way_back(store, platform(), None)
    assert (way.live, way.target, way.already_live) == (second, first, False)


def test_the_first_release_has_no_way_back(tmp_path: Path) -> None:
    store, (first,) = sealed(tmp_path, 3)
    with pytest.raises(NotEligibleError, match="is in service"):
        find_way_back(store, platform(), None)
    store.switch("promote", first, "passed")
    with pytest.raises(NotEligibleError, match="no earlier release"):
        find_way_back(store, platform(), None)


def test_going_back_to_what_is_in_service_changes_nothing(tmp_path: Path) -> None:
    store, (first,) = sealed(tmp_path, 3)
    store.switch("promote", first, "passed")
    assert find_way_back(store, platform(), first[:12]).already_live


def test_a_changed_byte_stops_the_way_back(tmp_path: Path) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    store.switch("promote", first, "passed")
    store.switch("promote", second, "passed")
    path = store.release_folder(first) / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b"2026", b"2027", 1))
    with pytest.raises(IntegrityError, match="was changed after it was sealed"):
        find_way_back(store, platform(), None)
    assert store.live() == second


def test_another_gpu_is_refused_and_another_driver_only_said() -> None:
    then, here = platform(gpus=(GPU,), driver="580.1"), platform(gpus=(GPU,), driver="580.2")
    assert compare_platforms(then, here) == ("driver was 580.1, is 580.2",)
    with pytest.raises(IncompatibleError, match="was judged on `1 x NVIDIA H200"):
        compare_platforms(then, platform())


def test_another_package_version_is_said() -> None:
    here = platform(packages={"torch": "2.14.0", "vllm": "0.33.0"})
    assert compare_platforms(platform(), here) == (
        "torch was 2.13.0, is 2.14.0",
        "vllm was absent, is 0.33.0",
    )
