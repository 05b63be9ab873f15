"""What a rank does of a request: all of it, or one leg of two; and whose engine it is. Names only.

A *pair* is a prefill rank and a decode rank. The prefill leg computes the prompt's cache, the decode leg takes it over
and generates. How the two are told of each other is the engine's own (`router/proxy/legs/`).
"""

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What a worker's ranks do."""

    #: Prefills and generates.
    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"


class Engine(StrEnum):
    """Engines whose ways are known."""

    SGLANG = "sglang"
    VLLM = "vllm"


class Bootstrap(msgspec.Struct, frozen=True):
    """Where an SGLang prefill worker lets decode workers find it."""

    host: str
    #: None where it is not known; the engine then takes its own default.
    port: int | None = None
