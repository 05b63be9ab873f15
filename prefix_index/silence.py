"""How long nothing could be heard of a rank, and what that leaves of its credit. Pure."""


class Silence:
    """A span in which events cannot be had, or come late: what is known stays, and is believed less the longer."""

    def __init__(self, *, half_life_s: float, grace_s: float = 0.0) -> None:
        """Start without a silence.

        Args:
            half_life_s: Age beyond the grace at which credit has halved.
            grace_s: Length up to which a silence means nothing.
        """
        self._half_life_s = half_life_s
        self._grace_s = grace_s
        self._since_s: float | None = None
        #: It has lasted for longer than the grace, as of the last look.
        self.counts = False

    def see(self, now_s: float, *, is_silent: bool) -> None:
        """Look: it is silent, or it is not (any more)."""
        if not is_silent:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        self.counts = self._since_s is not None and now_s - self._since_s >= self._grace_s

    def age_s(self, now_s: float) -> float:
        """How long it has lasted; 0 where there is none."""
        return 0.0 if self._since_s is None else max(0.0, now_s - self._since_s)

    def credit_ratio(self, now_s: float) -> float:
        """Share of credit that is left: 1 within the grace, then halving."""
        return float(0.5 ** (max(0.0, self.age_s(now_s) - self._grace_s) / self._half_life_s))
