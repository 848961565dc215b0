import json
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

pytestmark = pytest.mark.timeout(60)  # starts real runtimes

PROMPT = list(range(20))
ROOT = Path(__file__).parents[2]


def events(response):
    lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith(b"data: ") for line in lines)
    return [line.removeprefix(b"data: ") for line in lines]


def test_capture_lines_are_those_of_tensorrt_llm_largest_first(server):
    marks = ("Run generation-only CUDA graph warmup for ", "Run piecewise CUDA graph warmup for ")
    captured = [
        line.split(" for ")[1].strip() for line in server.lines if any(mark in line for mark in marks)
    ]
    decode = [f"batch size={size}, draft_len=0, max_seq_len=4096" for size in (8, 4, 2, 1)]
    assert captured == [*decode, *(f"num tokens={size}" for size in (64, 32, 16))]
    assert "[TRT-LLM] [RANK 0] [I] Creating CUDA graph instances for 4 batch sizes." in "".join(server.lines)


def test_the_plain_routes_say_who_serves(server):
    assert requests.get(f"{server.url}/health", timeout=9).content == b""
    assert server.get("/version") == {"version": "1.2.0", "reference": True}
    assert server.get("/v1/models")["data"][0]["id"] == "tiny"


def test_server_info_says_what_runs_not_what_was_asked(server):
    info = server.get("/server_info")
    assert (info["max_batch_size"], info["max_num_tokens"], info["max_seq_len"]) == (16, 128, 4096)
    assert info["decode"]["grid"] == info["decode"]["captured"] == [1, 2, 4, 8]
    assert info["tokens"]["captured"] == [16, 32, 64]
    assert set(info["tokens"]["capture_ms"]) == {"16", "32", "64"}
    assert "faults" not in json.dumps(info)


def test_a_streamed_answer_has_one_event_a_token_then_usage_and_the_end_mark(server):
    asked = {"prompt": PROMPT, "max_tokens": 5, "ignore_eos": True, "return_token_ids": True, "logprobs": 1}
    response = server.complete(**asked, stream=True, stream_options={"include_usage": True})
    *chunks, usage, end = events(response)
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    whole = server.complete(**asked).json()["choices"][0]
    assert [token for choice in choices for token in choice["token_ids"]] == whole["token_ids"]
    assert [choice["finish_reason"] for choice in choices] == [None] * 4 + ["length"]
    assert all(len(choice["logprobs"]["token_logprobs"]) == 1 for choice in choices)
    assert json.loads(usage)["usage"] == {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    assert end == b"[DONE]"


def test_metrics_say_for_each_iteration_whether_it_replayed_and_are_empty_after_a_read(server):
    server.get("/metrics")
    server.tokens(PROMPT, count=3)
    rows = server.get("/metrics")
    assert [row["graph"] for row in rows] == [
        {"kind": "tokens", "bucket": 32, "size": 20, "replayed": True, "reason": None},
        {"kind": "decode", "bucket": 1, "size": 1, "replayed": True, "reason": None},
        {"kind": "decode", "bucket": 1, "size": 1, "replayed": True, "reason": None},
    ]
    assert [row["inflightBatchingStats"]["numCtxTokens"] for row in rows] == [20, 0, 0]
    assert [row["iter"] for row in rows] == list(range(rows[0]["iter"], rows[0]["iter"] + 3))
    assert server.get("/metrics") == []


def test_sixteen_clients_at_once_get_what_each_gets_alone(server):
    prompts = [[number, *range(number * 7)] for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(server.tokens, prompts))
    assert together == [server.tokens(prompt) for prompt in prompts]


def test_a_bad_body_is_answered_with_400_and_the_reason(server):
    answer = server.complete(prompt=PROMPT, max_tokens=5000)
    assert answer.status_code == 400
    assert "exceed max_seq_len 4096" in answer.json()["error"]["message"]


def test_a_client_that_goes_away_frees_its_place(server):
    body = {"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with requests.post(f"{server.url}/v1/completions", json=body, stream=True, timeout=20) as response:
        next(response.iter_lines())
    seen = []
    while (
        len(rows := ask_once(server)) > 1
    ):  # the one step of our own, and those of the client that went away
        seen += rows
    assert 0 < len(seen) < 4000
    assert any(row["kvCacheStats"]["usedNumBlocks"] > 0 for row in seen)
    (row,) = rows
    assert row["inflightBatchingStats"]["numScheduledRequests"] == 1
    assert row["kvCacheStats"]["usedNumBlocks"] == 0


def ask_once(server):
    """Ask for one token; returns the rows of every step since the last look."""
    server.tokens(PROMPT, count=1)
    return server.get("/metrics")


def test_the_iteration_log_is_printed_when_asked_for(server):
    server.tokens(PROMPT, count=1)
    server.wait_for("'num_ctx_requests': 1, 'num_ctx_tokens': 20, 'num_generation_tokens': 0}")


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_with_an_open_stream_cleanly(launch, number):
    server = launch()
    server.wait_for("Application startup complete.")
    body = {"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with requests.post(f"{server.url}/v1/completions", json=body, stream=True, timeout=20) as response:
        next(response.iter_content(1))
        server.process.send_signal(number)
        assert server.process.wait(20) == 0
    assert "Traceback" not in server.output()


@pytest.mark.usefixtures("default_signals")
def test_a_signal_during_the_start_ends_it_cleanly(launch):
    server = launch("--fault", "hang-at-start")
    server.wait_for("Starting the reference runtime")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0


@pytest.mark.parametrize(
    ("flags", "options", "part"),
    [
        ((), {"no_such_key": 1}, "`no_such_key`: Extra inputs are not permitted"),
        (("--fault", "explode"), {}, "fault `explode` is not one of"),
        (("--config", "nowhere.yaml"), {}, "`nowhere.yaml` cannot be read"),
    ],
)
def test_a_wrong_setting_ends_the_start_with_one_line(launch, flags, options, part):
    server = launch(*flags, options=options or {"max_batch_size": 1})
    output = server.output()
    assert server.process.wait(20) == 2
    assert part in output
    assert output.count("\n") == 1


def test_a_port_that_is_taken_is_refused_before_anything_is_loaded(launch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = launch(port=port)
        output = server.output()
    assert server.process.wait(20) == 2
    assert f"Failed to bind socket to 127.0.0.1:{port}" in output


def test_it_ends_with_the_process_that_started_it():
    code = (
        "import os, subprocess, sys; subprocess.Popen([*sys.argv[1:], '--die-with-parent', str(os.getpid())])"
    )
    command = [sys.executable, "-m", "trtgate.reference", "tiny", "--port", "0", "--fault", "hang-at-start"]
    # the pipe is at its end only when the server, which inherits it, has ended too
    subprocess.run(
        [sys.executable, "-c", code, *command], stdout=subprocess.PIPE, timeout=60, cwd=ROOT, check=True
    )


def test_an_unknown_model_ends_the_start(launch):
    server = launch(model="./nowhere")
    assert "model `./nowhere` is neither tiny, 1b, 8b nor a folder" in server.output()
    assert server.process.wait(20) == 2
