"""vLLM's options, sizes, log lines and graph table, from what its versions were seen to print."""

import json
from pathlib import Path

import pytest
import yaml

from tests.runtimes.fakes import CONFIG
from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids, Phase
from trtgate.runtimes.stats import Poller
from trtgate.runtimes.versions import parse_version
from trtgate.runtimes.vllm_grids import Limits, default_sizes, grids_of

RUNTIME = runtime_for("vllm")
GOLDEN = Path(__file__).with_name("golden")
V26, V32 = parse_version("0.26.0"), parse_version("0.32.0")
TARGETS = {
    "tuned": CONFIG,
    "default": CONFIG.model_copy(update={"target": "default", "decode_buckets": None, "token_buckets": None}),
    "eager": CONFIG.model_copy(update={"target": "eager", "decode_buckets": (), "token_buckets": ()}),
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


@pytest.mark.parametrize("version", ["0.10.0", "0.26.0", "0.32.0"])
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_rendered_text_equals_the_golden_file(version, target):
    text = RUNTIME.render(TARGETS[target], version)["vllm.yaml"]
    assert text == (GOLDEN / f"vllm-{version}-{target}.yaml").read_text()


def compilation(config: RuntimeConfig) -> dict[str, object]:
    return json.loads(yaml.safe_load(RUNTIME.render(config, "0.32.0")["vllm.yaml"])["compilation-config"])


@pytest.mark.parametrize(
    ("decode", "tokens", "mode"),
    [((1, 2), (16,), "FULL_AND_PIECEWISE"), ((1, 2), (), "FULL_DECODE_ONLY"), ((), (16,), "PIECEWISE")],
)
def test_mode_follows_the_kinds_asked_for(decode, tokens, mode):
    config = CONFIG.model_copy(update={"decode_buckets": decode, "token_buckets": tokens})
    assert compilation(config)["cudagraph_mode"] == mode


def test_one_list_in_tokens_holds_both_grids():
    config = CONFIG.model_copy(update={"draft_len": 1, "decode_buckets": (1, 4), "token_buckets": (16, 48)})
    assert compilation(config)["cudagraph_capture_sizes"] == [2, 8, 16, 48]


SEEN = [(256, 2048, 51, 512), (128, 2048, 35, 256), (100, 1024, 28, 200), (6, 2048, 4, 8)]


@pytest.mark.parametrize(("seqs", "tokens", "count", "largest"), SEEN)
def test_default_list_equals_the_one_seen_in_0_26(seqs, tokens, count, largest):
    sizes = default_sizes(Limits(seqs, tokens), V26)
    assert (len(sizes), sizes[-1]) == (count, largest)


def test_newer_default_list_holds_the_batch_limit():
    assert 6 not in default_sizes(Limits(6, 2048), V26)
    assert 6 in default_sizes(Limits(6, 2048), V32)


@pytest.mark.parametrize(
    ("mode", "sizes", "seqs", "grids"),
    [
        ("FULL_AND_PIECEWISE", (1, 2, 4, 8), 6, Grids((1, 2, 4), (1, 2, 4, 8))),
        ("FULL_DECODE_ONLY", (1, 2, 4, 8), 6, Grids((1, 2, 4), ())),
        ("FULL", (1, 2, 4, 8), 6, Grids((1, 2, 4, 8), (1, 2, 4, 8))),
        ("PIECEWISE", (1, 2, 4, 8), 8, Grids((), (1, 2, 4, 8))),
        ("NONE", (1, 2), 8, Grids()),
    ],
)
def test_mode_decides_what_a_list_means(mode, sizes, seqs, grids):
    assert grids_of(sizes, mode, Limits(seqs, 64)) == grids


def iteration(number: int, contexts: int, context_tokens: int, generations: int, ms: float = 8.9) -> str:
    return (
        f"(EngineCore pid=9) INFO 11-29 15:04:26 [core.py:1] Engine 000: Iteration({number}): {contexts} context "
        f"requests, {context_tokens} context tokens, {generations} generation requests, {generations} generation "
        f"tokens, iteration elapsed time: {ms:.2f} ms, GPU KV cache usage: 0.5%"
    )


def steps(lines: list[str], grids: Grids):
    return RUNTIME.steps(RUNTIME.rows(lines), grids, CONFIG)


@pytest.mark.parametrize(
    ("grids", "size", "bucket", "reason"),
    [
        (Grids((1, 2, 4, 8), (1, 2, 4, 8)), 3, 4, None),
        (Grids((1, 2, 4), (1, 2, 4, 8)), 5, 8, "piecewise graph"),
        (Grids((1, 2, 4), ()), 5, None, "above largest bucket"),
        (Grids((), (1, 2, 4, 8)), 3, 4, "piecewise graph"),
        (Grids(), 3, None, "graphs off"),
    ],
)
def test_decode_step_gets_the_graph_that_the_dispatcher_gives(grids, size, bucket, reason):
    (step,) = steps([iteration(577, 0, 0, size)], grids)
    assert (step.kind, step.size, step.bucket, step.reason) == ("decode", size, bucket, reason)
    assert (step.replayed, step.step_ms, step.iteration) == (bucket is not None, 8.9, 577)


def test_mixed_step_counts_all_its_tokens():
    (step,) = steps([iteration(1, 2, 20, 3)], Grids((1, 2, 4, 8), (16, 32)))
    assert (step.kind, step.size, step.bucket, step.context_requests) == ("tokens", 23, 32, 2)


def test_lines_of_the_engines_own_process_are_read_too():
    line = (
        "(EngineCore_DP0 pid=2010410) INFO 12-22 21:44:40 [core.py:349] Iteration(515): 0 context requests, "
        "0 context tokens, 20 generation requests, 20 generation tokens, iteration elapsed time: 10.99 ms"
    )
    assert [step.size for step in steps([line, line.replace("DP0", "DP1")], Grids())] == [20]


def test_idle_iterations_and_other_engines_are_left_out():
    other = iteration(2, 0, 0, 3).replace("Engine 000", "Engine 001")
    assert steps([iteration(1, 0, 0, 0), other], Grids()) == []


TABLE = [
    "(APIServer pid=1) INFO 11-29 15:04:27 [loggers.py:1] **CUDAGraph Config Settings:**",
    (
        "(APIServer pid=1) INFO 11-29 15:04:27 [loggers.py:1] | Unpadded Tokens | Padded Tokens | Num Paddings | "
        "Runtime Mode | Count |"
    ),
    "(APIServer pid=1) INFO 11-29 15:04:27 [loggers.py:1] |-----------------|---------------|",
    (
        "(APIServer pid=1) INFO 11-29 15:04:27 [loggers.py:1] | 3               | 4             | 1            "
        "| FULL         | 2     |"
    ),
    (
        "(APIServer pid=1) INFO 11-29 15:04:27 [loggers.py:1] | 20              | 20            | 0            "
        "| NONE         | 1     |"
    ),
]


def test_graph_table_is_one_row():
    (row,) = RUNTIME.rows(TABLE)
    assert row["graph_table"][0] == {"size": 3, "bucket": 4, "mode": "FULL", "count": 2}
    assert len(row["graph_table"]) == 2


class Logged:
    """A server of which only the log is read."""

    url = "http://127.0.0.1:1"
    kv_tokens = 1000

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        log_path.write_text("")

    def alive(self) -> bool:
        return True


def test_graph_table_settles_what_was_predicted(tmp_path, monkeypatch):
    monkeypatch.setattr(RUNTIME, "settle_s", 0.0)
    server = Logged(tmp_path / "log")
    with Poller(server, RUNTIME, Grids((4,), (32,)), CONFIG, tmp_path / "rows", interval_s=600.0) as poller:
        lines = [iteration(1, 1, 20, 0), iteration(2, 0, 0, 3), iteration(3, 0, 0, 4), *TABLE]
        server.log_path.write_text("\n".join(lines) + "\n")
        mixed, decode, unsaid = poller.drain()
    assert (mixed.replayed, mixed.predicted) == (False, False)
    assert (decode.replayed, decode.bucket, decode.predicted) == (True, 4, False)
    assert unsaid.predicted


CONFIG_LINE = (
    "(EngineCore pid=9) INFO 11-29 15:04:26 [core.py:1] Initializing a V1 LLM engine (v0.26.0) with config: "
    "model='m', compilation_config={'mode': 3, 'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, "
    "'cudagraph_capture_sizes': [8, 4, 2, 1], 'max_cudagraph_capture_size': 8}"
)
ARGS_LINE = "(APIServer pid=1) INFO 11-29 15:04:10 [utils.py:1] non-default args: {'max_num_seqs': 6, 'x': 1}"
DONE_LINE = (
    "(EngineCore pid=9) INFO 11-29 15:05:01 [r.py:1] Graph capturing finished in 3 secs, took 0.12 GiB"
)


def test_limits_in_effect_are_read_from_the_log():
    args = ARGS_LINE.replace("'x': 1", "'max_num_batched_tokens': 64")
    config = CONFIG_LINE.replace("model='m'", "model='m', max_seq_len=128")
    assert RUNTIME.reported({}, [args, config]) == {
        "max_batch_size": 6,
        "max_num_tokens": 64,
        "max_seq_len": 128,
    }


def test_capacity_of_the_cache_is_read_from_the_log():
    assert RUNTIME.kv_tokens(["(EngineCore pid=9) INFO GPU KV cache size: 1,048,576 tokens"]) == 1_048_576
    assert RUNTIME.kv_tokens([]) is None


def test_captured_sizes_are_the_resolved_ones_once_capture_finished():
    assert RUNTIME.captured([ARGS_LINE, CONFIG_LINE, DONE_LINE]) == Grids((1, 2, 4), (1, 2, 4, 8))
    assert RUNTIME.captured([ARGS_LINE, CONFIG_LINE]) == Grids()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Loading weights took 0.03 seconds", "load"),
        ("Dynamo bytecode transform time: 3.1 s", "compile"),
        ("Initial profiling/warmup run took 0.4 s", "warm-up"),
        ("Capturing CUDA graphs (decode, FULL):  25%|##    | 1/4 [00:00<00:01]", "capture"),
        ("INFO:     Application startup complete.", "ready"),
    ],
)
def test_stages_are_recognised(line, name):
    assert RUNTIME.phase(f"(EngineCore pid=9) INFO 11-29 15:04:26 [x.py:1] {line}") == Phase(name)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing", "kv-memory"),
        (
            "ValueError: Free memory on device (3/80 GiB) on startup is less than desired GPU memory utilization",
            "memory-held",
        ),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.",
            "sampler-oom",
        ),
        ("RuntimeError: CUDA error: out of memory", "out-of-memory"),
        ("KeyError: 'BOGUS'", "bad-configuration"),
        ("vllm serve: error: unrecognized arguments: --bogus", "bad-configuration"),
    ],
)
def test_start_failures_are_named_by_their_root_and_not_by_the_noise(line, code):
    noise = "RuntimeError: Engine core initialization failed. See root cause above."
    failure = RUNTIME.failure([noise, f"(EngineCore pid=9) ERROR 11-29 15:04:26 [core.py:9] {line}"], 1, None)
    assert failure.code == code
    assert failure.root.endswith(line)


def said(text: str, version: str = "0.32.0", **limits: int) -> dict[str, str]:
    return {item.code: item.message for item in RUNTIME.check(text, version, limits)}


def test_old_and_new_spelling_together_are_refused():
    text = "cuda-graph-sizes: [512]\ncompilation-config: '{\"cudagraph_capture_sizes\": [1, 2, 4]}'\n"
    assert said(text)["given-twice"] == (
        "`cuda_graph_sizes` and `compilation-config.cudagraph_capture_sizes` are mutually exclusive"
    )


def test_single_old_value_is_a_maximum():
    assert said("cuda-graph-sizes: [512]")["renamed-key"] == (
        "`cuda_graph_sizes` (maximum 512) is unknown to version `0.32.0`"
    )
    assert said("cuda-graph-sizes: [512]", "0.10.0")["meaning"] == "`cuda_graph_sizes` means maximum 512"


@pytest.mark.parametrize("text", ["{'cudagraph_capture_sizes': [1,2]}", "{'use_inductor': True}"])
def test_python_text_in_place_of_json_is_named(text):
    message = "is written with single quotes, as Python does; the option takes JSON only"
    assert said(text) == {"not-json": f"the text {message}"}
    quoted = text.replace("'", "''")
    assert said(f"compilation-config: '{quoted}'")["not-json"] == f"`compilation-config` {message}"


def test_underscores_and_hyphens_are_the_same_option():
    left, right = (RUNTIME.inspect(f"max{sign}num{sign}seqs: 8", "0.32.0") for sign in "-_")
    assert left == right


def test_hyphens_within_the_json_are_not():
    findings = RUNTIME.check('{"cudagraph-capture-sizes": [1]}', "0.32.0")
    assert findings[0].hint == "did you mean `cudagraph_capture_sizes`?"


def test_maximum_that_differs_from_the_list_is_refused():
    text = '{"cudagraph_capture_sizes": [1, 2, 4], "max_cudagraph_capture_size": 8}'
    assert said(text)["both-given"] == (
        "`max_cudagraph_capture_size` 8 is not the largest entry 4 of `compilation-config.cudagraph_capture_sizes`"
    )


def test_batch_limit_missing_from_the_list_is_a_trap():
    text = '{"cudagraph_capture_sizes": [1, 2, 4, 8]}'
    assert said(text, max_batch_size=6)["eager-above-decode"] == (
        "decode batches of 5 to 6 get a piecewise graph at most: no size is captured from 5 to `max_num_seqs` 6"
    )


def test_sizes_above_the_token_budget_are_dropped():
    text = '{"cudagraph_capture_sizes": [1, 5000]}'
    assert said(text, max_num_tokens=2048)["unreachable-tokens"] == (
        "sizes `5000` are above `max_num_batched_tokens` 2048; the runtime drops them"
    )


@pytest.mark.parametrize(("version", "left"), [("0.26.0", "NONE"), ("0.32.0", "FULL_DECODE_ONLY")])
def test_piecewise_without_compilation_is_overridden(version, left):
    assert said('{"mode": 0}', version)["mode-overridden"] == (
        f"`cudagraph_mode` FULL_AND_PIECEWISE becomes {left}: `mode` 0 makes no piecewise graphs"
    )


def test_unknown_mode_is_refused():
    assert said('{"cudagraph_mode": "bogus"}')["bad-mode"] == "`cudagraph_mode` is `BOGUS`"


def test_what_hides_the_statistics_is_refused():
    assert "no step can be seen" in said("max-num-seqs: 8")["statistics-off"]
    assert "neither graph table nor metrics" in said("disable-log-stats: true")["statistics-off"]


def test_sizes_beside_enforce_eager_have_no_effect():
    assert "no-effect" in said("enforce-eager: true\ncudagraph-capture-sizes: [1, 2]")
