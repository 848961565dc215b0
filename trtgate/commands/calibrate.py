"""`trtgate calibrate`: what a step costs on this machine, measured on the runtime itself."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtgate.commands.options import JsonOption, ProfileArgument, QuietOption, SetOption
from trtgate.console import Console
from trtgate.errors import RuntimeFailedError, UsageError

if TYPE_CHECKING:
    from trtgate.evidence.calibrate import Calibration
    from trtgate.evidence.curves import Point
    from trtgate.runtimes.base import Kind

OutOption = Annotated[Path, typer.Option("--out", help="Where the costs are written.")]
PointsOption = Annotated[int, typer.Option("--points", min=2, max=128, help="Sizes of each kind to visit.")]
RepeatOption = Annotated[int, typer.Option("--repeat", min=1, help="Visits of each size that count.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of the random order of visits.")]


def calibrate(
    profile: ProfileArgument,
    out: OutOption = Path("costs.json"),
    points: PointsOption = 16,
    repeat: RepeatOption = 3,
    seed: SeedOption = 1,
    settings: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure step time, graph memory and capture time on the runtime, for `build --costs`."""
    from trtgate.evidence.calibrate import Place, Sweep
    from trtgate.evidence.calibrate import calibrate as measure
    from trtgate.evidence.environment import read_platform
    from trtgate.profile import Profile
    from trtgate.releases.inputs import model_shape

    console = Console(as_json, quiet)
    _require_writable(out)
    loaded = Profile.load(profile).with_settings(tuple(settings or ()))
    kv_bytes_per_token = model_shape(loaded).kv_bytes_per_token
    with _workplace(console) as folder:
        place = Place(folder, read_platform(), kv_bytes_per_token)
        found = measure(loaded, Sweep(points, repeat, seed), place, console)
    found.costs.write(out)
    console.record(found.costs.model_dump(mode="json"))
    console.show(show_calibration(found, out))


@contextmanager
def _workplace(console: Console) -> Iterator[Path]:
    """A folder for configurations and logs; only a failure of the runtime, which its log explains, keeps it."""
    folder = Path(tempfile.mkdtemp(prefix="trtgate-calibrate-"))
    try:
        yield folder
    except RuntimeFailedError:
        console.step(f"the runtime's logs are kept in `{folder / 'logs'}`")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _require_writable(out: Path) -> None:
    """Refuse before minutes of measuring what could not be written after them."""
    if out.is_dir():
        raise UsageError(f"`{out}` is a folder", "name a file, as in `--out costs.json`")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise UsageError(f"`{out}` cannot be written", f"check `{folder}` and its rights")


def show_calibration(found: "Calibration", out: Path) -> str:
    """The points as a table, what graphs cost, what was left out, and where the costs are."""
    from trtgate.commands.show import paragraph
    from trtgate.console import mebibytes, table

    costs = found.costs
    heads = ("step", "size", "eager ms", "+-", "replay ms", "+-", "saved", "visits")
    lines = [table(heads, [row for kind in ("decode", "tokens") for row in _rows(found, kind)]), ""]
    for title, memory, sizes, capture_s in (
        ("decode", costs.decode_graph_bytes, costs.decode_replay.sizes, costs.decode_capture_s),
        ("token", costs.token_graph_bytes, costs.token_replay.sizes, costs.token_capture_s),
    ):
        whole = mebibytes(memory.of(len(sizes), sizes[-1]))
        lines.append(f"{len(sizes)} {title} graphs up to {sizes[-1]}: {whole}, {capture_s:.3f} s each")
    lines.append(f"KV cache: {costs.kv_bytes_per_token} bytes a token")
    lines += [paragraph(finding) for finding in found.findings]
    lines.append(paragraph(f"costs of `{costs.model}` on `{costs.platform}`"))
    return "\n".join([*lines, f"written to {out}"])


def _rows(found: "Calibration", kind: "Kind") -> Iterator[tuple[object, ...]]:
    eager = {point.size: point for point in found.points[kind, "eager"]}
    replay = {point.size: point for point in found.points[kind, "replay"]}
    for size in sorted({*eager, *replay}):
        one, other = eager.get(size), replay.get(size)
        saved = f"{1 - other.ms / one.ms:+.1%}" if one and other else "-"
        visits = "+".join(str(point.visits if point else 0) for point in (one, other))
        yield (kind, size, *_cells(one), *_cells(other), saved, visits)


def _cells(point: "Point | None") -> tuple[str, str]:
    return ("-", "-") if point is None else (f"{point.ms:.3f}", f"{point.spread_ms:.3f}")
