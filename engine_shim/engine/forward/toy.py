"""How to get the torch forward; torch itself is imported only when one is built."""

from collections.abc import Callable, Sequence

from engine_shim.engine.forward.base import Forward
from engine_shim.engine.spec import EngineSpec


def build_torch_embedder(spec: EngineSpec, seed: int) -> Callable[[Sequence[int]], list[float]]:
    """What makes vectors of texts with the same weights.

    Raises:
        ImportError: torch is not installed.
    """
    from engine_shim.engine.forward.torch_embedder import TorchEmbedder  # noqa: PLC0415 - as below

    return TorchEmbedder(spec, seed=seed).embed


def build_torch_forward(spec: EngineSpec, seed: int) -> Forward:
    """Build the seeded model and its KV pool on the CPU; equal seeds and sizes give equal outputs.

    Raises:
        ImportError: torch is not installed (it comes with the `engine` extra).
    """
    spec.validate()
    from engine_shim.engine.forward.torch_forward import TorchForward  # noqa: PLC0415 - torch is optional and slow

    return TorchForward(spec, seed=seed)
