"""Seconds between two tokens on a rank that generates."""

from router.config_policy import Coefficients


def added_step_s(
    requests: int, context_tokens: float, capacity_tokens: int | None, coefficients: Coefficients
) -> float:
    """Seconds that so many generating requests, attending to so many tokens in all, add to a step.

    `requests * c_req + context * c_ctx + c_full * p`, where `p` is the share of the KV cache that the tokens attended
    to fill, at most 1; without a known capacity the last part counts nothing.
    """
    full_s = 0.0
    if capacity_tokens:
        full_s = coefficients.decode_s_per_full_cache * min(1.0, context_tokens / capacity_tokens)
    return (
        coefficients.decode_s_per_request * requests + coefficients.decode_s_per_context_token * context_tokens + full_s
    )
