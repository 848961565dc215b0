"""Cost curves, graph memory and the prior."""

import pytest

from tests.plans.samples import curve
from trtgate.errors import UsageError
from trtgate.plans.costs import DEVICES, MODELS, Costs, GraphMemory, model_shape_from_config, prior_costs

LLAMA_8B = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def prior(model="8b", device="h200"):
    return prior_costs(MODELS[model], DEVICES[device], max_size_decode=256, max_size_tokens=8192)


def test_a_curve_is_straight_between_points_flat_below_and_goes_on_above():
    assert curve((2, 1.0), (4, 3.0)).at([1, 2, 3, 4, 6]).tolist() == [1, 1, 2, 3, 5]


def test_a_falling_end_goes_on_flat():
    assert curve((2, 3.0), (4, 1.0)).at([4, 100]).tolist() == [1, 1]


def test_a_single_point_is_the_same_everywhere():
    assert curve((8, 2.0)).at([1, 8, 99]).tolist() == [2, 2, 2]


@pytest.mark.parametrize("points", [((2, 1.0), (2, 1.0)), ((0, 1.0),), ((1, 0.0),), ((3, 1.0), (1, 1.0))])
def test_points_that_make_no_curve_are_refused(points):
    with pytest.raises(ValueError, match="curve"):
        curve(*points)


def test_graphs_share_the_pool_of_the_largest():
    memory = GraphMemory(base_bytes=7, largest_bytes_per_size=2.5, each_bytes=3)
    assert [memory.of(0, 0), memory.of(1, 8), memory.of(4, 8)] == [0, 30, 39]


def test_every_prior_curve_says_that_it_is_one():
    held = prior()
    curves = (held.decode_replay, held.decode_eager, held.token_replay, held.token_eager)
    assert {each.basis for each in curves} == {"prior"}


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_prior_replay_of_the_exact_size_never_costs_more_than_eager(model, device):
    held = prior(model, device)
    sizes = [1, 3, 64, 256]
    assert all(held.decode_replay.at(sizes) <= held.decode_eager.at(sizes))
    assert all(held.token_replay.at(sizes) <= held.token_eager.at(sizes))


def test_the_prior_knows_that_large_steps_on_a_gpu_gain_nothing_from_graphs():
    held = prior()
    assert held.token_replay.at(4096) == held.token_eager.at(4096)
    assert held.decode_replay.at(1) < 0.6 * held.decode_eager.at(1)


def test_the_prior_is_near_what_was_measured_on_an_h200():
    decode, tokens = prior("1b"), prior("8b")
    assert decode.decode_replay.at([1, 256]) == pytest.approx([2.4, 8.7], rel=0.2)
    assert decode.decode_eager.at([1, 256]) == pytest.approx([8.4, 10.4], rel=0.2)
    assert tokens.token_eager.at([512, 1024]) == pytest.approx([17.1, 28.6], rel=0.2)
    assert tokens.token_replay.at(1024) == pytest.approx(28.4, rel=0.2)


def test_costs_come_back_from_disk_as_they_were(tmp_path):
    prior().write(tmp_path / "costs.json")
    assert Costs.read(tmp_path / "costs.json") == prior()


def test_parameters_of_an_8b_model_are_counted():
    assert MODELS["8b"].parameters == pytest.approx(7.5e9, rel=0.02)


def test_a_shape_is_read_from_a_llama_configuration():
    assert model_shape_from_config(LLAMA_8B) == MODELS["8b"]
    assert model_shape_from_config({"text_config": LLAMA_8B}) == MODELS["8b"]


def test_a_configuration_without_sizes_is_refused_by_name():
    with pytest.raises(UsageError, match="`num_hidden_layers` is missing"):
        model_shape_from_config({"model_type": "bert"})


def test_a_limit_of_nothing_has_no_cost():
    with pytest.raises(UsageError, match="largest size"):
        prior_costs(MODELS["tiny"], DEVICES["cpu"], max_size_decode=0, max_size_tokens=1)
