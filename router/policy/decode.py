"""Term `decode`: seconds by which the request and those that generate on a rank slow each other."""

from router.config.policy import Coefficients
from router.policy.base import PlacementQuery, RankView
from router.policy.steps import context_token_s


class DecodeTerm:
    """Seconds: for each request open there, the steps that both are expected to generate in, times what each adds.

        sum over i of T_i * (2 * c_req + c_ctx * (context_i + prompt))

    `T_i` is the expected minimum of an answer's length and of what is left of answer `i`, from the lengths seen of
    late (`router.fleet.outputs`), all of them times `joint_ratio` where the client allows only a short one; a step
    slows by `c_req` for each request and by `c_ctx` for each token attended to (`router.policy.steps`). What a
    request costs alone is the same on every rank and left out: it would only widen the window in which costs count as
    tied.
    """

    name = "decode"

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def cost_s(self, query: PlacementQuery, rank: RankView) -> float:
        """Seconds lost to each other."""
        if not rank.joint_output_tokens:
            return 0.0
        return query.decode_ratio * query.joint_ratio * self._slow_down_s(rank, query.prompt_tokens)

    def _slow_down_s(self, rank: RankView, prompt_tokens: int) -> float:
        attended = rank.joint_context_tokens + prompt_tokens * rank.joint_output_tokens
        request_s = 2 * self._coefficients.decode_s_per_request * rank.joint_output_tokens
        attended_s = attended * context_token_s(rank.capacity_tokens, self._coefficients, rank.context_ratio)
        return rank.decode_ratio * (request_s + attended_s)
