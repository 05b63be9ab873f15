"""Time as placement counts it: never backwards, and no leap that would age everything at once.

Stimuli carry the time of the process they come from. A clock that goes far back goes on here from where it was set; a
leap counts in part. So loads keep shrinking, homes outlive a bad clock, and a report from the future cannot make the
work of the present look done.
"""

import math

#: Longest step that a stimulus may bring about.
MAX_STEP_S = 86_400.0
#: The same for a load report, of which one comes every few seconds.
MAX_REPORT_STEP_S = 60.0
#: A stimulus so far in the past is taken as late: time waits for the clock to come by again.
MAX_WAIT_S = 60.0


class PlacementClock:
    """Turns the times of stimuli into times that only grow."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        #: Placement's own time; starts at that of the first stimulus.
        self.now_s = 0.0
        #: Stimuli whose time was no number, lay far in the past, or too far ahead.
        self.jumps = 0

    def advance(self, stimulus_s: float) -> float:
        """Placement's time at a stimulus."""
        if self._last_s is not None and 0.0 < stimulus_s - self._last_s <= MAX_STEP_S:
            self.now_s += stimulus_s - self._last_s
            self._last_s = stimulus_s
            return self.now_s
        step_s = self._find_step_s(stimulus_s)
        if step_s is None or -MAX_WAIT_S <= step_s <= 0.0:
            return self.now_s
        self._last_s = stimulus_s
        if not 0.0 < step_s <= MAX_STEP_S:
            self.jumps += 1
            step_s = min(max(step_s, 0.0), MAX_STEP_S)
        self.now_s += step_s
        return self.now_s

    def advance_by_report(self, report_s: float) -> float:
        """The same for a report, which carries time on a little at most and never back."""
        step_s = self._find_step_s(report_s)
        if step_s is None or step_s <= 0.0 or self._last_s is None:
            return self.now_s
        if step_s > MAX_REPORT_STEP_S:
            self.jumps += 1
            step_s = MAX_REPORT_STEP_S
        self._last_s += step_s
        self.now_s += step_s
        return self.now_s

    def _find_step_s(self, stimulus_s: float) -> float | None:
        """Seconds since the last stimulus; None for the first, and for what is no time."""
        if not math.isfinite(stimulus_s):
            self.jumps += 1
            return None
        if self._last_s is None:
            self._last_s = self.now_s = stimulus_s
            return None
        return stimulus_s - self._last_s
