"""How many prompt tokens a step may still compute."""


class TokenBudget:
    """Starts full at every step; decode tokens do not count."""

    def __init__(self, budget_tokens: int) -> None:
        self.left_tokens = budget_tokens

    def take(self, wanted_tokens: int) -> int:
        """Spend up to `wanted_tokens`; returns how many were left to spend, 0 included."""
        taken = min(wanted_tokens, self.left_tokens)
        self.left_tokens -= taken
        return taken
