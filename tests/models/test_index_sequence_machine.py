"""Random networks between a publisher and a sequencer: what is applied is what was published, once, in order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefix_index.sequence import Sequencer

BUFFER = 6
MAX_HELD = 8


class SequenceMachine(RuleBasedStateMachine):
    """A publisher with a short replay buffer, a live socket that loses messages, replays that lose messages too."""

    def __init__(self):
        super().__init__()
        self.sequencer: Sequencer[tuple[int, int]] = Sequencer(replay_available=True, max_held=MAX_HELD)
        self.life = 0
        self.published: list[tuple[int, int]] = []
        #: What the subscriber applied since its last reset.
        self.applied: list[tuple[int, int]] = []
        self.is_whole = True
        self.replay: list[tuple[int, int]] | None = None

    def take(self, step):
        if step.reset_reason is not None:
            self.applied = []
            self.is_whole = True
        self.is_whole &= step.missing is None
        self.applied += [entry[-2:] for entry in step.apply]
        if step.ask_replay_from is not None:
            kept = self.published[-BUFFER:]
            self.replay = [entry for entry in kept if entry[1] >= step.ask_replay_from]
        elif not self.sequencer.is_replaying:
            self.replay = None

    @rule(lost=st.sampled_from([False, False, False, True]), damaged=st.sampled_from([False, False, True]))
    def publish(self, lost, damaged=False):
        """A damaged batch keeps its number; its live copy cannot be read, its replayed one perhaps."""
        entry = (self.life, len(self.published))
        self.published.append(entry)
        if not lost:
            self.take(self.sequencer.on_live(entry[1], ("damaged", *entry) if damaged else entry, is_damaged=damaged))

    @precondition(lambda self: self.published)
    @rule()
    def restart(self):
        """The new process's first batch arrives, so that the restart can be seen."""
        self.life += 1
        self.published = []
        self.publish(lost=False)

    @precondition(lambda self: self.replay)
    @rule(lost=st.sampled_from([False, False, False, True]), damaged=st.sampled_from([False, False, True]))
    def answer(self, lost, damaged):
        entry = self.replay.pop(0)
        if not lost:
            copy = ("damaged", *entry) if damaged else entry
            self.take(self.sequencer.on_replay(entry[1], copy, is_damaged=damaged))

    @precondition(lambda self: self.replay == [])
    @rule()
    def end(self):
        self.take(self.sequencer.on_replay_end())

    @precondition(lambda self: self.replay is not None)
    @rule()
    def fail(self):
        self.take(self.sequencer.on_replay_failed())

    @invariant()
    def applied_is_in_order_and_of_one_life(self):
        numbers = [number for _, number in self.applied]
        assert numbers == sorted(set(numbers))
        assert len({life for life, _ in self.applied}) <= 1
        assert self.sequencer.held_count <= MAX_HELD + 1

    @invariant()
    def a_whole_stream_is_a_prefix_of_what_was_published(self):
        if self.is_whole and self.applied and self.applied[0][0] == self.life:
            assert self.applied == self.published[: len(self.applied)]

    @invariant()
    def nothing_is_held_without_a_replay_that_runs(self):
        assert self.sequencer.is_replaying or self.sequencer.held_count == 0


TestSequenceMachine = SequenceMachine.TestCase
TestSequenceMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
