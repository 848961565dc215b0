"""The sizes of a Llama-shaped decoder: three built in, others read from a folder's `config.json`."""

import json
from dataclasses import dataclass
from pathlib import Path

from .settings import SettingsError


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and counts of a decoder with grouped-query attention, rotary positions and a gated MLP."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    max_positions: int
    rope_theta: float
    eps: float
    eos: int
    tied: bool
    folder: Path | None = None

    @property
    def kv_values_per_token(self) -> int:
        """Numbers kept in the KV cache for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim


BUILT_IN = {
    "tiny": Shape(320, 128, 2, 4, 2, 32, 384, 4096, 1e4, 1e-5, 256, tied=False),
    "1b": Shape(128256, 2048, 16, 32, 8, 64, 8192, 131072, 5e5, 1e-5, 128001, tied=True),
    "8b": Shape(128256, 4096, 32, 32, 8, 128, 14336, 131072, 5e5, 1e-5, 128001, tied=False),
}


def read_shape(model: str) -> Shape:
    """The shape of a built-in name or a local folder; refuses (`SettingsError`) what is neither."""
    if model in BUILT_IN:
        return BUILT_IN[model]
    path = Path(model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return _from_config(config, path.parent)
    except FileNotFoundError as error:
        raise SettingsError(
            f"model `{model}` is neither {', '.join(BUILT_IN)} nor a folder with `config.json`"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"`{path}` does not describe a Llama-shaped model: {error!r}") from error


def _from_config(config: dict[str, object], folder: Path) -> Shape:
    if config.get("rope_scaling") is not None or config.get("attention_bias"):
        raise ValueError("rope_scaling and attention_bias are not offered")
    number = {name: int(str(config[name])) for name in NEEDED}
    if min(number.values()) < 1:
        raise ValueError("sizes must be at least 1")
    eos = config.get("eos_token_id", 2)
    heads = number["num_attention_heads"]
    return Shape(
        number["vocab_size"],
        number["hidden_size"],
        number["num_hidden_layers"],
        heads,
        int(str(config.get("num_key_value_heads") or heads)),
        int(str(config.get("head_dim") or number["hidden_size"] // heads)),
        number["intermediate_size"],
        int(str(config.get("max_position_embeddings", 2048))),
        float(str(config.get("rope_theta", 1e4))),
        float(str(config.get("rms_norm_eps", 1e-5))),
        int(str(eos[0] if isinstance(eos, list) else eos)),
        tied=bool(config.get("tie_word_embeddings", False)),
        folder=folder,
    )


NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
