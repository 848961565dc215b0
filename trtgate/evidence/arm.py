"""One side of a comparison, and how it is started: the same way in warm-up, canary and rollback."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trtgate.console import Console
from trtgate.evidence.ledger import ArmName
from trtgate.loads.base import Dialect, Target
from trtgate.plans.config import RuntimeConfig, config_for
from trtgate.plans.config import Target as PlanTarget
from trtgate.plans.plan import write_files
from trtgate.profile import Profile
from trtgate.record import sha256
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Launch, Runtime
from trtgate.runtimes.process import Event, Server, serve


@dataclass(frozen=True, slots=True)
class Arm:
    """A profile and a configuration that can be started; `sha256` names the plan or configuration behind it."""

    name: ArmName
    title: str
    profile: Profile
    config: RuntimeConfig
    config_folder: Path
    sha256: str
    judged_version: str | None = None  # of the runtime, where a sealed release was judged on one

    @property
    def runtime(self) -> Runtime:
        """The adapter of the profile's runtime."""
        return runtime_for(self.profile.runtime.kind)

    @property
    def version(self) -> str:
        """The version of the runtime that the configuration was rendered for."""
        return self.profile.runtime.version


def rendered_arm(profile: Profile, target: PlanTarget, title: str, folder: Path) -> Arm:
    """An arm of the runtime's own default or of eager steps, its configuration written into `folder`."""
    config = config_for(profile, target)
    runtime = runtime_for(profile.runtime.kind)
    digests = write_files(folder, runtime.render(config, profile.runtime.version))
    identity = sha256(f"{profile.digest} {sorted(digests.items())}".encode())
    return Arm("baseline", title, profile, config, folder, identity)


@contextmanager
def started(arm: Arm, log_path: Path, console: Console) -> Iterator[Server]:
    """Start the arm's runtime, wait until it answers, stop it always."""
    settings = arm.profile.runtime
    launch = Launch(
        model=arm.profile.model.path,
        host=settings.host,
        port=settings.port,
        config=arm.config,
        folder=arm.config_folder,
        args=settings.args,
        version=settings.version,
    )

    def on_event(event: Event) -> None:
        if event.kind != "line" and event.phase is not None:
            console.progress(f"{arm.title}: {event.phase}")

    with serve(
        arm.runtime,
        launch,
        log_path=log_path,
        env=settings.env,
        progress_deadline_s=settings.progress_deadline_s,
        stop_deadline_s=settings.stop_deadline_s,
        on_event=on_event,
    ) as server:
        console.progress_done()
        yield server


def target_of(server: Server, profile: Profile) -> Target:
    """Where the load goes, in the dialect that this runtime understands."""
    dialect: Dialect = "tensorrt-llm" if profile.runtime.kind == "tensorrt-llm" else "vllm"
    return Target(url=server.url, model=server.model, dialect=dialect)
