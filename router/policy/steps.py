"""Seconds between two tokens on a rank that generates."""

from router.config.policy import Coefficients


def context_token_s(capacity_tokens: int | None, coefficients: Coefficients, context_ratio: float = 1.0) -> float:
    """Seconds that one token attended to adds to a step.

    Its share of `decode_s_per_full_cache` where that and the size of the KV cache are known, else
    `decode_s_per_context_token`; times what was measured of it over what is predicted.
    """
    if capacity_tokens and coefficients.decode_s_per_full_cache > 0:
        return context_ratio * coefficients.decode_s_per_full_cache / capacity_tokens
    return context_ratio * coefficients.decode_s_per_context_token


def attended_s(
    context_tokens: float, capacity_tokens: int | None, coefficients: Coefficients, context_ratio: float = 1.0
) -> float:
    """Seconds that so many tokens attended to in all add to a step, one full KV cache of them at most."""
    attended_tokens = min(context_tokens, capacity_tokens) if capacity_tokens else context_tokens
    return attended_tokens * context_token_s(capacity_tokens, coefficients, context_ratio)


def added_step_s(
    requests: int,
    context_tokens: float,
    capacity_tokens: int | None,
    coefficients: Coefficients,
    context_ratio: float = 1.0,
) -> float:
    """Seconds that so many generating requests, attending to so many tokens in all, add to a step.

    `requests * c_req + context * c_ctx`, the context counted as one full KV cache at most.
    """
    return coefficients.decode_s_per_request * requests + attended_s(
        context_tokens, capacity_tokens, coefficients, context_ratio
    )
