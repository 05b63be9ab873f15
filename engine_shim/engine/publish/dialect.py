"""Which public encoding the event stream speaks, by name."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial

from wire.dialects import sglang, vllm
from wire.events import EventBatch

_VLLM_MAP_VERSION = "0.32"
_VLLM_ARRAY_VERSION = "0.23"


class EventDialect(StrEnum):
    """Encodings that the publisher speaks."""

    SGLANG_MAP = "sglang-map"
    SGLANG_ARRAY = "sglang-array"
    VLLM_MAP = "vllm-map"
    VLLM_ARRAY = "vllm-array"

    @property
    def replays_topic(self) -> bool:
        """True where replay answers carry the topic frame."""
        return self is EventDialect.VLLM_MAP and vllm.replays_with_topic(_VLLM_MAP_VERSION)

    def encoder(self) -> Callable[[EventBatch], bytes]:
        """The function that writes a batch in this encoding."""
        match self:
            case EventDialect.SGLANG_MAP:
                return partial(sglang.encode_batch, generation=sglang.Generation.MAP)
            case EventDialect.SGLANG_ARRAY:
                return partial(sglang.encode_batch, generation=sglang.Generation.ARRAY)
            case EventDialect.VLLM_MAP:
                return partial(vllm.encode_batch, version=_VLLM_MAP_VERSION)
            case EventDialect.VLLM_ARRAY:
                return partial(vllm.encode_batch, version=_VLLM_ARRAY_VERSION)
