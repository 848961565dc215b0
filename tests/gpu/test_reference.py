import numpy as np
import pytest
import torch

from trtgate.reference.cache import Cache
from trtgate.reference.engine import Engine, Request
from trtgate.reference.faults import parse_faults
from trtgate.reference.graphs import CaptureMemoryError, Runner
from trtgate.reference.model import Decoder
from trtgate.reference.settings import Settings, apply_options
from trtgate.reference.shapes import BUILT_IN
from trtgate.reference.steps import Batch, Chunk
from trtgate.reference.worker import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MAX_SEQ_LEN = 512
GRAPHS = {
    "cuda_graph_config": {"batch_sizes": [1, 2, 4, 8], "enable_padding": True},
    "torch_compile_config": {"enable_piecewise_cuda_graph": True, "capture_num_tokens": [16, 64, 128]},
}


def make_runner(dtype, faults=(), max_num_tokens=256, **options):
    device = torch.device("cuda")
    settings = Settings(
        "tiny", max_batch_size=16, max_num_tokens=max_num_tokens, faults=parse_faults(list(faults))
    )
    decoder = Decoder(BUILT_IN["tiny"], dtype, device, seed=0, positions=MAX_SEQ_LEN)
    cache = Cache(decoder.shape, 8192, dtype, device)
    runner = Runner(decoder, cache, apply_options(settings, options or GRAPHS), MAX_SEQ_LEN, lambda *_: None)
    runner.warm_up()
    runner.capture()
    return runner


def answers(runner, prompts, *, eager=False, count=12):
    engine = Engine(runner, chunked=True, eos=-1, max_stats=1000)
    for number, prompt in enumerate(prompts):
        engine.add(Request(number, prompt, count, ignore_eos=True))
    found = [([], []) for _ in prompts]
    while engine.busy:
        for answer in engine.step(eager=eager):
            found[answer.id][0].append(answer.token)
            found[answer.id][1].append(answer.logprob)
    return found, list(engine.rows)


def make_prompts(count, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, size) for size in random.integers(1, 120, count)]


@pytest.mark.parametrize("requests", [1, 3, 8, 11])
@pytest.mark.parametrize("max_num_tokens", [40, 256])
def test_replays_answer_as_eager_alone_in_float64(requests, max_num_tokens):
    prompts = make_prompts(requests, seed=requests)
    runner = make_runner(torch.float64, max_num_tokens=max_num_tokens)
    alone = [answers(runner, [prompt], eager=True)[0][0][0] for prompt in prompts]
    found, rows = answers(runner, prompts)
    assert [tokens for tokens, _ in found] == alone
    largest = {"decode": 8, "tokens": 16 if max_num_tokens < 64 else 128}
    assert rows
    assert all(row.use.replayed == (row.use.size <= largest[row.use.kind]) for row in rows)


def test_bfloat16_uses_the_flash_kernel_and_stays_near_eager():
    prompts = make_prompts(8)
    runner = make_runner(torch.bfloat16)
    assert runner.cache.flash
    eager = [answers(runner, [prompt], eager=True, count=1)[0][0][1][0] for prompt in prompts]
    found = [scores[0] for _, scores in answers(runner, prompts, count=1)[0]]
    assert found == pytest.approx(eager, abs=0.25)


def test_flash_and_portable_attention_agree_on_a_mixed_batch():
    runner = make_runner(torch.bfloat16)
    prompt = np.arange(100)
    scores = []
    for flash in (True, False):
        runner.cache.flash = flash
        runner.launch(Batch([], [Chunk(prompt[:60], 0, 0, last=False)]), eager=True)
        runner.wait(0)
        batch = Batch([(5, 0, 4000)], [Chunk(prompt[60:], 60, 0, last=True)])
        runner.launch(batch, eager=True)
        scores.append(runner.wait(2)[1])
    assert scores[0] == pytest.approx(scores[1], abs=0.25)


def test_device_time_is_measured_and_is_part_of_the_host_time():
    _, rows = answers(make_runner(torch.bfloat16), make_prompts(4))
    assert all(0 < row.device_ms <= row.host_ms for row in rows)


def test_out_of_memory_while_capturing_names_the_bucket():
    with pytest.raises(CaptureMemoryError, match="batch size=4, draft_len=0"):
        make_runner(torch.bfloat16, faults=["oom-at-capture:4"])


def test_graphs_take_kv_tokens_away():
    settings = Settings("1b", max_batch_size=64, max_num_tokens=512, max_seq_len=1024)
    left = []
    for options in ({"cuda_graph_config": None}, {"cuda_graph_config": {"enable_padding": True}}):
        engine, info = build(apply_options(settings, options), lambda *_: None)
        left.append((info["graph_memory_bytes"], info["kv_tokens"]))
        del engine
        torch.cuda.empty_cache()
    assert left[0][0] < left[1][0]
    assert left[0][1] > left[1][1]
