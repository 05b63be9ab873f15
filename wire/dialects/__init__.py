"""Public encodings of cache events, both directions.

`decode_batch` reads any of them; `sglang` and `vllm` write them, by generation or version.
"""

from wire.dialects.decode import decode_batch

__all__ = ["decode_batch"]
