"""What any runtime must be told, in words that belong to none of them."""

from typing import Literal

from pydantic import model_validator

from trtgate.profile import Profile
from trtgate.record import Record

Target = Literal["tuned", "default", "eager"]


class RuntimeConfig(Record):
    """Limits and buckets, neutral to the runtime.

    Buckets are ascending; `()` switches graphs of that kind off and `None` leaves the choice to the runtime.
    """

    target: Target
    decode_buckets: tuple[int, ...] | None
    token_buckets: tuple[int, ...] | None
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    draft_len: int = 0
    tensor_parallel: int = 1
    chunked_prefill: bool = True
    block_reuse: bool = False  # off while buckets are proven: reuse would change the sizes that are visited
    kv_memory_fraction: float = 0.9

    @model_validator(mode="after")
    def _ascending(self) -> "RuntimeConfig":
        for buckets in (self.decode_buckets or (), self.token_buckets or ()):
            if list(buckets) != sorted(set(buckets)) or any(bucket < 1 for bucket in buckets):
                raise ValueError("buckets are ascending positive sizes, each once")
        return self


def config_for(
    profile: Profile,
    target: Target,
    decode_buckets: tuple[int, ...] | None = (),
    token_buckets: tuple[int, ...] | None = (),
) -> RuntimeConfig:
    """The configuration of a profile under the given buckets; `default` and `eager` fix their own."""
    if target == "default":
        decode_buckets = token_buckets = None
    elif target == "eager":
        decode_buckets = token_buckets = ()
    limits = profile.limits
    return RuntimeConfig(
        target=target,
        decode_buckets=decode_buckets,
        token_buckets=token_buckets,
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        draft_len=limits.draft_len,
        tensor_parallel=limits.tensor_parallel,
        kv_memory_fraction=limits.kv_memory_fraction,
    )
