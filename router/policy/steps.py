"""Seconds between two tokens on a rank that generates."""

from router.config_policy import Coefficients


def context_token_s(capacity_tokens: int | None, coefficients: Coefficients) -> float:
    """Seconds that one token attended to adds to a step.

    Its share of `decode_s_per_full_cache` where that and the size of the KV cache are known, else
    `decode_s_per_context_token`.
    """
    if capacity_tokens and coefficients.decode_s_per_full_cache > 0:
        return coefficients.decode_s_per_full_cache / capacity_tokens
    return coefficients.decode_s_per_context_token


def added_step_s(
    requests: int, context_tokens: float, capacity_tokens: int | None, coefficients: Coefficients
) -> float:
    """Seconds that so many generating requests, attending to so many tokens in all, add to a step.

    `requests * c_req + context * c_ctx`, the context counted as one full KV cache at most.
    """
    attended_tokens = min(context_tokens, capacity_tokens) if capacity_tokens else context_tokens
    return coefficients.decode_s_per_request * requests + attended_tokens * context_token_s(
        capacity_tokens, coefficients
    )
