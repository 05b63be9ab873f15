"""Seconds that a prefill takes."""

from router.config import Coefficients


def prefill_s(uncached_tokens: int, prompt_tokens: int, coefficients: Coefficients) -> float:
    """Seconds to compute the last `uncached_tokens` of a prompt, the rest being cached.

    `c_lin * u + c_att * u * (L - u / 2)`: each new token attends to all that stand before it, half of the new ones on
    average.
    """
    attended = prompt_tokens - uncached_tokens / 2
    return uncached_tokens * (
        coefficients.prefill_s_per_token + coefficients.attention_s_per_token_pair * max(0.0, attended)
    )
