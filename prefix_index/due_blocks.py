"""Blocks that an engine must have stored, and the events that must have told of them. Pure."""

#: Full new blocks that must be due before silence means anything.
MIN_DUE = 3


class DueBlocks:
    """Counts what is due on one rank since it last told of a stored block."""

    def __init__(self, *, limit_s: float, half_life_s: float) -> None:
        """Start with nothing due.

        Args:
            limit_s: Longest wait for the event of a block that is due.
            half_life_s: Age of a silence at which credit has halved.
        """
        self._limit_s = limit_s
        self._half_life_s = half_life_s
        self._count = 0
        self._since_s: float | None = None
        #: Blocks were due and nothing came in time.
        self.is_overdue = False

    def expect(self, count: int, now_s: float) -> None:
        """More full blocks were computed that the rank did not have."""
        if count > 0:
            self._count += count
            self._since_s = now_s if self._since_s is None else self._since_s

    def arrive(self) -> None:
        """The rank told of a stored block, or all is new: nothing is due any more."""
        self._count = 0
        self._since_s = None
        self.is_overdue = False

    def check(self, now_s: float) -> bool:
        """Look at the clock; True when the silence has just become too long."""
        was_overdue = self.is_overdue
        if self._since_s is not None and self._count >= MIN_DUE and now_s - self._since_s >= self._limit_s:
            self.is_overdue = True
        return self.is_overdue and not was_overdue

    def credit_ratio(self, now_s: float) -> float:
        """Share of credit that is left after the silence: 1 while it is not too long, then halving."""
        if not self.is_overdue or self._since_s is None:
            return 1.0
        return float(0.5 ** (max(0.0, now_s - self._since_s - self._limit_s) / self._half_life_s))
