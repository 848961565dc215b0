import json

import numpy as np
import pytest
import torch

from trtgate.reference.cache import Cache
from trtgate.reference.graphs import Runner
from trtgate.reference.model import Decoder
from trtgate.reference.settings import Settings, SettingsError, apply_options
from trtgate.reference.shapes import read_shape
from trtgate.reference.steps import Batch, Chunk

CONFIG = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-5,
    "eos_token_id": [7, 8],
}
LAYER = {
    "input_layernorm": (16,),
    "self_attn.q_proj": (16, 16),
    "self_attn.k_proj": (8, 16),
    "self_attn.v_proj": (8, 16),
    "self_attn.o_proj": (16, 16),
    "post_attention_layernorm": (16,),
    "mlp.gate_proj": (24, 16),
    "mlp.up_proj": (24, 16),
    "mlp.down_proj": (16, 24),
}


def write_model(folder, **changed):
    sizes = {"model.embed_tokens": (50, 16), "model.norm": (16,), "lm_head": (50, 16)}
    sizes |= {f"model.layers.{layer}.{name}": size for layer in range(2) for name, size in LAYER.items()}
    random = np.random.default_rng(0)
    tensors = {
        f"{name}.weight": random.normal(0, 0.5, size).astype(np.float32) for name, size in sizes.items()
    }
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        span = [len(data), len(data) + tensor.nbytes]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": span}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text(json.dumps(CONFIG | changed))
    return tensors


def norm(values, weight):
    return values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-5) * weight


def rotate(values, base=100.0):
    """Rotary positions of [tokens, heads, 4] as the Llama paper's authors published them, halves apart."""
    angles = np.arange(len(values))[:, None, None] * base ** -(np.arange(2) / 2)
    first, second = values[..., :2], values[..., 2:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), -1)


def scores_by_hand(tensors, ids):
    """Log-probabilities after the last token, computed token by token from the definition."""
    weight = {name.removesuffix(".weight"): tensor.astype(np.float64) for name, tensor in tensors.items()}
    hidden = weight["model.embed_tokens"][ids]
    for layer in range(2):
        part = {name: weight[f"model.layers.{layer}.{name}"] for name in LAYER}
        inner = norm(hidden, part["input_layernorm"])
        query, key, value = (
            (inner @ part[f"self_attn.{name}_proj"].T).reshape(len(ids), -1, 4) for name in "qkv"
        )
        query, key = rotate(query), rotate(key)
        attended = np.zeros((len(ids), 4, 4))
        for at in range(len(ids)):
            for head in range(4):
                logits = key[: at + 1, head // 2] @ query[at, head] / 2
                share = np.exp(logits - logits.max())
                attended[at, head] = share @ value[: at + 1, head // 2] / share.sum()
        hidden = hidden + attended.reshape(len(ids), -1) @ part["self_attn.o_proj"].T
        inner = norm(hidden, part["post_attention_layernorm"])
        gate = inner @ part["mlp.gate_proj"].T
        hidden = (
            hidden + (gate / (1 + np.exp(-gate)) * (inner @ part["mlp.up_proj"].T)) @ part["mlp.down_proj"].T
        )
    logits = norm(hidden[-1], weight["model.norm"]) @ weight["lm_head"].T
    return logits - np.log(np.exp(logits).sum())


def load(folder, dtype=torch.float64):
    decoder = Decoder(read_shape(str(folder)), dtype, torch.device("cpu"), seed=0, positions=64)
    settings = apply_options(Settings("x", max_batch_size=2, max_num_tokens=32), {"cuda_graph_config": None})
    return Runner(decoder, Cache(decoder.shape, 64, dtype, decoder.device), settings, 64, lambda *_: None)


@pytest.mark.parametrize("length", [1, 2, 11])
def test_a_folder_of_safetensors_is_computed_as_the_llama_definition_says(tmp_path, length):
    tensors = write_model(tmp_path)
    ids = np.arange(length) * 3 % 50
    runner = load(tmp_path)
    runner.launch(Batch([], [Chunk(ids, 0, 0, last=True)]))
    (token,), (score,), _ = runner.wait(1)
    expected = scores_by_hand(tensors, ids)
    assert token == expected.argmax()
    assert score == pytest.approx(expected.max(), abs=1e-9)


def test_the_shape_of_a_folder_is_that_of_its_config(tmp_path):
    write_model(tmp_path)
    shape = read_shape(str(tmp_path))
    assert (shape.head_dim, shape.kv_heads, shape.eos, shape.tied) == (4, 2, 7, False)
    assert shape.kv_values_per_token == 2 * 2 * 2 * 4


@pytest.mark.parametrize(
    "changed", [{"rope_scaling": {"type": "llama3"}}, {"vocab_size": None}, {"hidden_size": 0}]
)
def test_a_config_that_cannot_be_computed_is_refused(tmp_path, changed):
    write_model(tmp_path, **changed)
    with pytest.raises(SettingsError, match=r"config\.json"):
        read_shape(str(tmp_path))


def test_a_tensor_of_another_shape_is_named(tmp_path):
    write_model(tmp_path, intermediate_size=32)
    with pytest.raises(SettingsError, match=r"`model.layers.0.mlp.gate_proj.weight` is of shape \(24, 16\)"):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(SettingsError, match="has no"):
        load(tmp_path)


def test_equal_seeds_give_equal_random_weights_and_others_do_not():
    shape = read_shape("tiny")
    make = [Decoder(shape, torch.float64, torch.device("cpu"), seed=seed, positions=8) for seed in (0, 0, 1)]
    assert torch.equal(make[0].embedding, make[1].embedding)
    assert not torch.equal(make[0].embedding, make[2].embedding)
