import pytest
import requests

pytestmark = pytest.mark.timeout(60)  # starts real runtimes

PROMPT = list(range(20))
READY = "Application startup complete."
SLIM = {"max_batch_size": 8, "max_num_tokens": 64, "max_seq_len": 128, "enable_iter_perf_stats": True}
DECODE = {"cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 4]}}


def launch_ready(launch, *flags, **options):
    server = launch(*flags, options={**SLIM, **DECODE, **options})
    server.wait_for(READY)
    return server


@pytest.fixture(scope="module")
def honest(launch):
    return launch_ready(launch)


@pytest.mark.parametrize(
    ("fault", "parts"),
    [
        ("crash-at-start", ["fault `crash-at-start`"]),
        (
            "oom-at-capture:4",
            [
                "Executor creation failed due to insufficient GPU memory.",
                "(while capturing the CUDA graph for batch size=4, draft_len=0, max_seq_len=128)",
                "The following component could not be created: Additional executor resources",
            ],
        ),
    ],
)
def test_a_failed_start_prints_its_cause_above_what_tensorrt_llm_prints(launch, fault, parts):
    server = launch("--fault", fault, options={**SLIM, **DECODE})
    output = server.output()
    places = [output.index(part) for part in [*parts, "RuntimeError: Executor worker returned error"]]
    assert places == sorted(places)
    assert server.process.wait(20) == 1


def test_a_wrong_bucket_answers_wrongly_only_where_it_is_replayed(launch, honest):
    server = launch_ready(launch, "--fault", "wrong-output:1")
    right, wrong = honest.tokens(PROMPT), server.tokens(PROMPT)
    assert right[0] == wrong[0]
    assert (right[1] + 1) % 320 == wrong[1]


def test_a_skipped_bucket_is_named_in_the_statistics_and_still_answers_rightly(launch, honest):
    server = launch_ready(launch, "--fault", "skip-capture:1")
    assert server.tokens(PROMPT) == honest.tokens(PROMPT)
    assert server.get("/metrics")[-1]["graph"]["reason"] == "not captured"
    assert server.get("/server_info")["decode"]["captured"] == [4]


def test_an_error_rate_fails_every_so_many_requests(launch):
    server = launch_ready(launch, "--fault", "error-rate:50%")
    assert [server.complete(prompt=PROMPT, max_tokens=1).status_code for _ in range(4)] == [
        200,
        500,
        200,
        500,
    ]


def test_a_crash_ends_the_process_with_status_1_after_the_last_answer(launch):
    server = launch_ready(launch, "--fault", "crash-after:2")
    assert [server.complete(prompt=PROMPT, max_tokens=2).status_code for _ in range(2)] == [200, 200]
    assert "Event loop terminated with error: " in server.output()
    assert server.process.wait(20) == 1


def test_a_crash_breaks_open_streams_off_without_an_end_mark(launch):
    server = launch_ready(launch, "--fault", "crash-after:1")
    body = {"prompt": PROMPT, "max_tokens": 100, "ignore_eos": True, "stream": True}
    with requests.post(f"{server.url}/v1/completions", json=body, stream=True, timeout=20) as response:
        server.complete(prompt=PROMPT, max_tokens=1)
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            response.content  # noqa: B018 - reading it is what fails


def test_a_hang_keeps_health_but_answers_nothing(launch):
    server = launch_ready(launch, "--fault", "hang-after:1")
    server.complete(prompt=PROMPT, max_tokens=1)
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(f"{server.url}/v1/completions", json={"prompt": PROMPT}, timeout=0.5)
    assert requests.get(f"{server.url}/health", timeout=9).status_code == 200


def test_early_health_is_200_while_nothing_can_be_answered(launch):
    server = launch_ready(launch, "--fault", "early-health", "--fault", "hang-at-start")
    assert requests.get(f"{server.url}/health", timeout=9).status_code == 200
    assert server.complete(prompt=PROMPT).status_code == 503


def test_a_slow_first_hit_is_slow_once(launch):
    server = launch_ready(launch, "--fault", "slow-first-hit:300")
    server.tokens(PROMPT)
    server.tokens(PROMPT)
    slow = [row["graph"]["bucket"] for row in server.get("/metrics") if row["hostStepTimeMS"] >= 300]
    assert slow.count(1) == 1
