"""Seconds that a prefill takes."""

from router.config.policy import Coefficients


def prefill_s(
    uncached_tokens: int, prompt_tokens: int, coefficients: Coefficients, attention_ratio: float = 1.0
) -> float:
    """Seconds to compute the last `uncached_tokens` of a prompt, the rest being cached.

    `c_lin * u + c_att * u * (L - u / 2)`: each new token attends to all that stand before it, half of the new ones on
    average.

    Args:
        uncached_tokens: Tokens to compute, `u`.
        prompt_tokens: Tokens of the prompt, `L`.
        coefficients: `c_lin` and `c_att`.
        attention_ratio: Measured seconds of the second part over its predicted ones, relative to the first part.
    """
    attended = max(0.0, prompt_tokens - uncached_tokens / 2)
    pair_s = coefficients.attention_s_per_token_pair * attention_ratio
    return uncached_tokens * (coefficients.prefill_s_per_token + pair_s * attended)
