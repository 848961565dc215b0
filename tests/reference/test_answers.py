import numpy as np
import pytest
import torch
from torch.nn import functional

import trtgate.reference.cache as cache_module
from trtgate.reference.cache import Cache
from trtgate.reference.engine import Engine, Request
from trtgate.reference.graphs import Runner
from trtgate.reference.model import Decoder
from trtgate.reference.settings import Settings, apply_options
from trtgate.reference.shapes import BUILT_IN
from trtgate.reference.steps import Span

torch.set_num_threads(1)
SHAPE, MAX_SEQ_LEN = BUILT_IN["tiny"], 512
DECODER = Decoder(SHAPE, torch.float64, torch.device("cpu"), seed=0, positions=MAX_SEQ_LEN)
GRAPHS = {
    "cuda_graph_config": {"batch_sizes": [1, 2, 4, 8], "enable_padding": True},
    "torch_compile_config": {"enable_piecewise_cuda_graph": True, "capture_num_tokens": [16, 64, 128]},
}
EAGER = {"cuda_graph_config": None}


def make_runner(max_batch_size=16, max_num_tokens=256, kv_tokens=8192, **options):
    settings = Settings("tiny", max_batch_size=max_batch_size, max_num_tokens=max_num_tokens)
    cache = Cache(SHAPE, kv_tokens, DECODER.dtype, DECODER.device)
    runner = Runner(DECODER, cache, apply_options(settings, options), MAX_SEQ_LEN, lambda *_: None)
    runner.capture()
    return runner


def make_engine(runner, *, chunked=True):
    return Engine(runner, chunked=chunked, eos=SHAPE.eos, max_stats=1000)


def answers(engine, prompts, count=12, **limits):
    for number, prompt in enumerate(prompts):
        engine.add(Request(number, np.array(prompt), count, ignore_eos=True, **limits))
    tokens = [[] for _ in prompts]
    while engine.busy:
        for answer in engine.step():
            tokens[answer.id].append(answer.token)
    return tokens


def make_prompts(count, longest, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, size) for size in random.integers(1, longest + 1, count)]


def alone(prompts, count=12):
    runner = make_runner(**EAGER)
    return [answers(make_engine(runner), [prompt], count)[0] for prompt in prompts]


@pytest.mark.parametrize("requests", [1, 2, 3, 5, 8, 11, 16])
def test_a_batch_answers_each_prompt_as_alone(requests):
    prompts = make_prompts(requests, 100, seed=requests)
    assert answers(make_engine(make_runner(**GRAPHS)), prompts) == alone(prompts)


@pytest.mark.parametrize("max_num_tokens", [16, 17, 40, 128])
def test_chunks_do_not_change_an_answer(max_num_tokens):
    prompts = make_prompts(6, 150, seed=max_num_tokens)
    runner = make_runner(max_num_tokens=max_num_tokens, **GRAPHS)
    assert answers(make_engine(runner), prompts) == alone(prompts)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 256])
def test_padding_a_prompt_does_not_change_its_answer(size):
    prompts = [np.arange(size) % 256]
    assert answers(make_engine(make_runner(**GRAPHS)), prompts) == alone(prompts)


def test_two_hundred_prompts_answer_alike_alone_and_in_full_padded_chunked_batches():
    prompts = make_prompts(200, 24, seed=7)
    runner = make_runner(max_batch_size=13, max_num_tokens=48, **GRAPHS)
    assert answers(make_engine(runner), prompts, count=3) == alone(prompts, count=3)


def test_most_answers_depend_on_an_early_token_of_a_long_prompt():
    prompts = [np.random.default_rng(seed).integers(0, 256, 200) for seed in range(10)]
    changed = [np.concatenate((prompt[:5], [255 - prompt[5]], prompt[6:])) for prompt in prompts]
    assert sum(first != second for first, second in zip(alone(prompts), alone(changed), strict=True)) > 5


def test_log_probabilities_agree_to_nine_digits_between_eager_and_padded():
    prompt = np.arange(50)
    scores = []
    for options in (GRAPHS, EAGER):
        engine = make_engine(make_runner(**options))
        engine.add(Request(0, prompt, 6, ignore_eos=True))
        scores.append([answer.logprob for _ in range(6) for answer in engine.step()])
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)
    assert all(score < 0 for score in scores[0])


def test_an_iteration_holds_all_generations_and_context_up_to_the_token_limit():
    engine = make_engine(make_runner(max_num_tokens=32, **GRAPHS))
    answers(engine, [np.arange(10), np.arange(40), np.arange(5)], count=4)
    rows = [
        (row.contexts, row.context_tokens, row.generations, row.use.kind, row.use.size) for row in engine.rows
    ]
    assert rows[:3] == [(2, 32, 0, "tokens", 32), (2, 23, 1, "tokens", 24), (0, 0, 3, "decode", 3)]


def test_without_chunks_a_prompt_waits_until_it_fits_whole():
    engine = make_engine(make_runner(max_num_tokens=32, **GRAPHS), chunked=False)
    answers(engine, [np.arange(20), np.arange(32)], count=2)
    assert [row.context_tokens for row in engine.rows] == [20, 0, 32, 0]


@pytest.mark.parametrize(("max_stats", "kept"), [(0, 0), (2, 2), (-1, 6)])
def test_as_many_rows_are_kept_as_asked_for(max_stats, kept):
    engine = Engine(make_runner(**EAGER), chunked=True, eos=-1, max_stats=max_stats)
    answers(engine, [[1]], count=6)
    assert len(engine.rows) == kept


def test_requests_are_admitted_in_order_up_to_the_batch_limit():
    engine = make_engine(make_runner(max_batch_size=2, **GRAPHS))
    answers(engine, [[1]] * 3, count=2)
    assert [(row.admitted, row.queued) for row in engine.rows] == [(2, 1), (0, 1), (1, 0), (0, 0)]


def test_a_full_cache_holds_requests_back_until_one_leaves():
    engine = make_engine(make_runner(kv_tokens=64, **GRAPHS))
    answers(engine, [np.arange(20)] * 3, count=3)
    assert max(row.generations for row in engine.rows) == 2
    assert engine.rows[-1].free_blocks == 2


def test_a_cancelled_request_gives_its_place_back():
    engine = make_engine(make_runner(max_batch_size=1, **GRAPHS))
    for number in range(2):
        engine.add(Request(number, np.array([1]), 50, ignore_eos=True))
    assert [answer.id for answer in engine.step()] == [0]
    engine.cancel(0)
    assert [answer.id for answer in engine.step()] == [1]


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        (GRAPHS, 3, (4, True, None)),
        (GRAPHS, 9, (None, False, "above largest bucket")),
        (EAGER, 3, (None, False, "graphs off")),
        ({"cuda_graph_config": {"batch_sizes": [2, 4]}}, 3, (None, False, "padding off")),
        ({"cuda_graph_config": {"batch_sizes": [2, 4]}}, 4, (4, True, None)),
    ],
)
def test_a_decode_step_goes_where_tensorrt_llm_would_send_it(options, size, expected):
    use = make_runner(**options).use("decode", size)
    assert (use.bucket, use.replayed, use.reason) == expected


def test_a_token_bucket_that_no_batch_can_fill_is_kept_but_not_captured():
    runner = make_runner(kv_tokens=96, **GRAPHS)
    use = runner.use("tokens", 100)
    assert (use.bucket, use.replayed, use.reason) == (128, False, "not captured")


def test_an_uncaptured_bucket_pads_and_still_answers_rightly():
    prompts = [np.arange(90)]
    runner = make_runner(kv_tokens=96, **GRAPHS)
    assert answers(make_engine(runner), prompts, count=6) == alone(prompts, count=6)


@pytest.mark.parametrize(("limits", "length"), [({}, 4), ({"min_tokens": 5}, 12), ({"ignore_eos": True}, 12)])
def test_an_answer_ends_at_its_eos_unless_told_to_go_on(limits, length):
    prompt = np.arange(20)
    expected = alone([prompt])[0]
    assert expected[3] not in expected[:3] + expected[4:]
    engine = Engine(make_runner(**EAGER), chunked=True, eos=expected[3])
    engine.add(Request(0, prompt, 12, **limits))
    tokens = [answer for _ in range(12) for answer in engine.step()]
    assert [answer.token for answer in tokens] == expected[:length]
    assert tokens[-1].finish == ("stop" if length == 4 else "length")


def flash_in_plain_torch(queries, keys, values, span):
    """What the GPU kernel computes from the same int32 tables, request by request."""
    parts = []
    for index, length in enumerate(span.lengths.tolist()):
        rows = queries[span.row_starts[index] : span.row_starts[index + 1]].transpose(0, 1)
        where = slice(int(span.starts[index]), int(span.starts[index]) + length)
        mask = torch.ones(rows.shape[1], length, dtype=torch.bool).tril(length - rows.shape[1])
        key, value = keys[where].transpose(0, 1), values[where].transpose(0, 1)
        parts.append(
            functional.scaled_dot_product_attention(rows, key, value, mask, enable_gqa=True).transpose(0, 1)
        )
    return torch.cat(parts)


def test_the_tables_for_the_gpu_kernel_describe_the_same_attention(monkeypatch):
    prompts = make_prompts(9, 100, seed=3)
    expected = alone(prompts)
    monkeypatch.setattr(cache_module, "flash_attention", flash_in_plain_torch)
    runner = make_runner(max_num_tokens=40, **GRAPHS)
    runner.cache.flash = True
    assert answers(make_engine(runner), prompts) == expected


def test_attention_over_a_window_is_attention_request_by_request():
    cache = Cache(SHAPE, 64, DECODER.dtype, DECODER.device)
    for pool in (cache.keys[0], cache.values[0]):
        pool.normal_(generator=torch.Generator().manual_seed(0))
    queries = torch.linspace(-1, 1, 3 * SHAPE.heads * SHAPE.head_dim, dtype=DECODER.dtype).view(
        3, SHAPE.heads, -1
    )
    starts, lengths = torch.tensor([0, 40, 64]), torch.tensor([20, 24, 1])
    span = Span(3, 1, 24, starts, lengths, torch.arange(4))
    each, window = cache._attend_each(0, queries, span), cache._attend_window(0, queries, span)
    assert torch.allclose(each, window, atol=1e-12)
