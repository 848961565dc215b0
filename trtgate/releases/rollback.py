"""The way back: which release, whether it is whole, and whether it fits this machine."""

from dataclasses import dataclass

from trtgate.errors import IncompatibleError, NotEligibleError
from trtgate.evidence.environment import Platform
from trtgate.releases.history import earlier_releases, rolled_back_from
from trtgate.releases.manifest import Release
from trtgate.releases.store import SHORT, Store


@dataclass(frozen=True, slots=True)
class WayBack:
    """A verified target; `already_live` where nothing has to change, `warnings` for what differs without harm."""

    live: str
    target: str
    release: Release
    already_live: bool
    warnings: tuple[str, ...]


def find_way_back(store: Store, here: Platform, to: str | None) -> WayBack:
    """Choose the target, verify every digest, compare platforms; changes nothing.

    Without `to`: the newest release that was in service before the live one and was not itself gone back from.
    """
    live = store.live()
    if live is None:
        raise NotEligibleError(
            f"no release of `{store.name}` is in service", "run `trtgate release CANDIDATE` first"
        )
    target = store.resolve(to) if to else _previous(store, live)
    release = store.verify(target)
    if to and target != live and target in rolled_back_from(store.history()):
        warnings: tuple[str, ...] = (f"release {target[:SHORT]} was itself gone back from before",)
    else:
        warnings = ()
    return WayBack(
        live, target, release, target == live, (*warnings, *compare_platforms(release.platform, here))
    )


def compare_platforms(then: Platform, here: Platform) -> tuple[str, ...]:
    """What differs in ways that only deserve a warning; `IncompatibleError` for another GPU or architecture."""
    old_gpus = [(gpu.name, gpu.compute_capability) for gpu in then.gpus]
    new_gpus = [(gpu.name, gpu.compute_capability) for gpu in here.gpus]
    if old_gpus != new_gpus or then.machine != here.machine:
        raise IncompatibleError(
            f"the release was judged on `{then.title}`, this is `{here.title}`",
            "go back on a machine of the same kind",
        )
    pairs = (
        ("driver", then.driver, here.driver),
        ("CUDA driver", then.cuda_driver, here.cuda_driver),
        *(
            (name, then.packages.get(name), here.packages.get(name))
            for name in sorted({*then.packages, *here.packages})
        ),
    )
    return tuple(
        f"{name} was {old or 'absent'}, is {new or 'absent'}" for name, old, new in pairs if old != new
    )


def _previous(store: Store, live: str) -> str:
    known = {release_id for release_id, _release in store.releases()}
    for release_id in earlier_releases(store.history(), live):
        if release_id in known:
            return release_id
    raise NotEligibleError(
        f"`{store.name}` has no earlier release to go back to than {live[:SHORT]}",
        f"name one with `--to`, or see `trtgate release list {store.name}`",
    )
