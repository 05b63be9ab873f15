"""Whether a worker counts as alive, from the run of its probes. Pure.

One failed probe says nothing; `unhealthy_after` in a row take a worker out, `healthy_after` in a row bring it
back. A worker starts as unhealthy until its first good probe.
Source: docs/faults.md D03.
"""


class HealthGate:
    """Hysteresis over the probes of one worker."""

    def __init__(self, *, unhealthy_after: int, healthy_after: int) -> None:
        self._unhealthy_after = unhealthy_after
        self._healthy_after = healthy_after
        self._streak = 0
        #: Whether the worker counts as alive.
        self.healthy = False
        #: Whether it ever did.
        self.was_healthy = False

    def record(self, ok: bool) -> bool:
        """Take in one probe; whether the verdict changed."""
        if ok == self.healthy:
            self._streak = 0
            return False
        self._streak += 1
        needed = self._healthy_after if ok and self.was_healthy else 1 if ok else self._unhealthy_after
        if self._streak < needed:
            return False
        self._streak = 0
        self.healthy = ok
        self.was_healthy = self.was_healthy or ok
        return True

    def fail_now(self) -> bool:
        """The worker is surely gone (it refused a connection): out at once; whether the verdict changed."""
        changed = self.healthy
        self.healthy = False
        self._streak = 0
        return changed
