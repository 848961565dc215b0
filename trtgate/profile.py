"""A deployment described in one YAML file: what is served, within which limits, and what a release must meet."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from trtgate.errors import UsageError
from trtgate.record import Record, describe_invalid, read_text

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]

RuntimeKind = Literal["tensorrt-llm", "vllm", "reference"]
Metric = Literal["ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "worst_gap_ms"]
Quantile = Literal["p50", "p95", "p99"]


class Model(Record):
    """What is served; `path` is a folder, a hub id, or a size of the reference runtime (`tiny`)."""

    path: str
    shape: str | None = None  # prior costs come from this shape where no `config.json` can be read
    dtype: Literal["float32", "bfloat16", "float16", "float8"] = "bfloat16"
    vocab_size: Positive | None = None


class Runtime(Record):
    """Which runtime serves it; `args` and `env` are handed through as they are."""

    kind: RuntimeKind
    version: str = "1.2.0"
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: any free port
    progress_deadline_s: Annotated[float, Field(gt=0)] = 600.0
    stop_deadline_s: Annotated[float, Field(gt=0)] = 30.0


class Limits(Record):
    """What the runtime may hold at once; tokens count a request's prompt and output together."""

    max_batch_size: Positive
    max_num_tokens: Positive
    max_seq_len: Annotated[int, Field(ge=2)]
    draft_len: Annotated[int, Field(ge=0)] = 0
    tensor_parallel: Positive = 1
    kv_memory_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.9


class Traffic(Record):
    """How the trace is turned into load on one replica."""

    trace: Path | None = None
    format: str | None = None
    replicas: Positive = 1
    speed_up: Annotated[float, Field(gt=0)] = 1.0
    length_scale: Annotated[float, Field(gt=0)] = 1.0
    fit_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.7  # the later rest is held out


class Grid(Record):
    """What the captured graphs may cost; the smallest grid within `tolerance` of the best is taken."""

    device: str = "h200"  # whose bandwidth and arithmetic the prior costs assume
    max_decode_graphs: Annotated[int, Field(ge=0)] = 16
    max_token_graphs: Annotated[int, Field(ge=0)] = 16
    graph_memory_bytes: Positive | None = None
    capture_s: Annotated[float, Field(gt=0)] | None = None
    alignment: Positive = 1
    pinned_decode: tuple[Positive, ...] = ()  # sizes that are always captured
    pinned_tokens: tuple[Positive, ...] = ()
    tolerance: Annotated[float, Field(ge=0)] = 0.01


class Warmup(Record):
    """How often a bucket is visited, and when it counts as stable."""

    repeat: Positive = 5
    stable_within: Annotated[float, Field(gt=0)] = 1.0  # last step against their median, as a fraction
    max_rounds: Positive = 3
    answer_tokens: Positive = 8
    logprob_tolerance: Annotated[float, Field(ge=0)] = (
        0.0  # 0: the same tokens; above: see `evidence/answers.py`
    )
    require_answers: bool = True  # false: a bucket is valid although none of its answers could be compared


class Canary(Record):
    """The measured load: `looks` are the numbers of pairs after which a decision may fall."""

    window_s: Annotated[float, Field(gt=0)] = 300.0
    looks: tuple[Positive, ...] = (6, 8, 10, 12)
    seed: int = 1
    warm_requests: Annotated[int, Field(ge=0)] = 32
    request_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    drain_s: Annotated[float, Field(gt=0)] = 120.0
    max_send_lateness_ms: Annotated[float, Field(gt=0)] = 50.0
    selfcheck: bool = True  # of the load generator on this host, two seconds before the first pair

    @field_validator("looks")
    @classmethod
    def _ascending(cls, looks: tuple[int, ...]) -> tuple[int, ...]:
        if not looks or list(looks) != sorted(set(looks)) or looks[0] < 2:
            raise ValueError(
                "looks are ascending numbers of pairs, the first at least 2, as in [6, 8, 10, 12]"
            )
        return looks


class MetricLimit(Record):
    """How much worse one quantile may get: by `margin` (a fraction) or by `floor` (in its unit), whichever is more."""

    metric: Metric
    quantile: Quantile
    margin: Annotated[float, Field(gt=0)] = 0.10
    floor: Annotated[float, Field(ge=0)] = 1.0
    critical: bool = True

    @property
    def name(self) -> str:
        """As printed: `ttft_ms p95`."""
        return f"{self.metric} {self.quantile}"


DEFAULT_METRICS = (
    MetricLimit(metric="ttft_ms", quantile="p50"),
    MetricLimit(metric="ttft_ms", quantile="p95"),
    MetricLimit(metric="ttft_ms", quantile="p99"),
    MetricLimit(metric="itl_ms", quantile="p50"),
    MetricLimit(metric="itl_ms", quantile="p95"),
    MetricLimit(metric="itl_ms", quantile="p99"),
    MetricLimit(metric="e2e_ms", quantile="p95"),
)


class Gate(Record):
    """What a candidate must meet: metric limits against the baseline, and hard limits of its own."""

    metrics: tuple[MetricLimit, ...] = DEFAULT_METRICS
    overall_level: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    max_error_ratio: Fraction = 0.0
    max_error_ratio_increase: Fraction = 0.0
    max_wrong_answer_ratio: Fraction = 0.0  # of the answers that could be compared with the baseline's
    max_fallback_ratio: Fraction = 0.05  # decode steps outside a captured graph
    max_fallback_increase: Fraction = 0.02
    max_padding_increase: Annotated[float, Field(ge=0)] = 1.0  # padded over real size, beyond the baseline's
    max_memory_increase: Fraction = 0.10
    min_kv_ratio: Fraction = 0.90  # KV tokens of the candidate over the baseline's

    @model_validator(mode="after")
    def _some_critical(self) -> Self:
        if not any(limit.critical for limit in self.metrics):
            raise ValueError("at least one metric must be critical, otherwise nothing is gated")
        names = [limit.name for limit in self.metrics]
        if len(names) != len(set(names)):
            raise ValueError("a metric and quantile may have one limit only")
        return self


class Profile(Record):
    """Everything trtgate must be told about one deployment; unknown keys are refused."""

    schema_version: Literal[1] = 1
    name: Name
    model: Model
    runtime: Runtime
    limits: Limits
    traffic: Traffic = Traffic()
    grid: Grid = Grid()
    warmup: Warmup = Warmup()
    canary: Canary = Canary()
    gate: Gate = Gate()

    def with_settings(self, settings: tuple[str, ...]) -> Self:
        """A new profile with `KEY.KEY=YAML_VALUE` settings applied, checked like a file."""
        data = self.model_dump(mode="json")
        for setting in settings:
            _apply(data, setting)
        return self._checked(data, "`--set`")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile from YAML; a relative `traffic.trace` is taken from the profile's folder."""
        try:
            data = yaml.safe_load(read_text(path))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            raise UsageError(f"`{path}` is not valid YAML{line}", "check indentation and quotes") from error
        if not isinstance(data, dict):
            raise UsageError(f"`{path}` holds no profile", "expected keys such as `name:` and `model:`")
        profile = cls._checked(data, f"`{path}`")
        trace = profile.traffic.trace
        if trace is None or trace.is_absolute():
            return profile
        traffic = profile.traffic.model_copy(update={"trace": path.parent / trace})
        return profile.model_copy(update={"traffic": traffic})

    @classmethod
    def _checked(cls, data: Any, where: str) -> Self:  # noqa: ANN401 - anything YAML can hold
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise describe_invalid(error, cls, where) from error


def _apply(data: dict[str, Any], setting: str) -> None:
    key, sign, value = setting.partition("=")
    if not sign:
        raise UsageError(f"`--set {setting}` has no `=`", "as in `--set limits.max_batch_size=64`")
    *groups, last = key.split(".")
    target: Any = data
    for group in groups:
        target = target.get(group) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        raise UsageError(f"`--set {key}` names no setting", "as in `--set limits.max_batch_size=64`")
    try:
        target[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"the value of `--set {setting}` is not valid YAML", "quote it") from error
