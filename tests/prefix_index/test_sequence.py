"""The numbers of one rank's batches."""

from prefix_index.sequence import Sequencer


class Tape:
    """Feeds a sequencer, remembers what it applied."""

    def __init__(self, *, replay: bool = True, max_held: int = 100) -> None:
        self.sequencer: Sequencer[str] = Sequencer(replay_available=replay, max_held=max_held)
        self.applied: list[str] = []

    def _take(self, step):
        if step.reset_reason is not None:
            self.applied.clear()
        self.applied += step.apply
        return step

    def live(self, seq: int):
        return self._take(self.sequencer.on_live(seq, f"b{seq}"))

    def live_damaged(self, seq: int):
        return self._take(self.sequencer.on_live(seq, f"bad{seq}", is_damaged=True))

    def replay_damaged(self, seq: int):
        return self._take(self.sequencer.on_replay(seq, f"bad{seq}", is_damaged=True))

    def replay(self, *seqs: int):
        return [self._take(self.sequencer.on_replay(seq, f"b{seq}")) for seq in seqs]

    def end(self):
        return self._take(self.sequencer.on_replay_end())

    def fail(self):
        return self._take(self.sequencer.on_replay_failed())


def names(*seqs: int) -> list[str]:
    return [f"b{seq}" for seq in seqs]


def test_batches_in_order_are_applied_at_once():
    tape = Tape()
    for seq in range(3):
        assert not tape.live(seq).gap
    assert tape.applied == names(0, 1, 2)


def test_a_gap_is_asked_for_and_live_batches_wait_for_it():
    tape = Tape()
    tape.live(0)
    assert tape.live(3).ask_replay_from == 1
    tape.live(4)
    assert tape.applied == names(0)
    tape.replay(1, 2, 3)
    assert tape.end().ask_replay_from is None
    assert tape.applied == names(0, 1, 2, 3, 4)


def test_A02_a_first_number_above_zero_asks_from_zero():
    tape = Tape()
    assert tape.live(37).ask_replay_from == 0
    assert tape.applied == []
    tape.replay(*range(38))
    tape.end()
    assert tape.applied == names(*range(38))


def test_A01_the_batch_after_a_repaired_gap_starts_no_second_recovery():
    tape = Tape()
    tape.live(0)
    tape.live(5)
    tape.replay(1, 2, 3, 4, 5)
    tape.end()
    assert tape.sequencer.applied == 5
    step = tape.live(6)
    assert (step.gap, step.ask_replay_from, step.apply) == (False, None, names(6))


def test_A03_a_number_going_backwards_resets_before_it_is_applied():
    tape = Tape()
    for seq in range(4):
        tape.live(seq)
    step = tape.live(0)
    assert step.reset_reason == "sequence went backwards"
    assert tape.applied == names(0)


def test_A03_the_same_number_twice_is_a_new_publisher():
    tape = Tape()
    tape.live(0)
    assert tape.live(0).reset_reason is not None


def test_A03_live_batches_that_a_replay_delivered_change_nothing():
    tape = Tape()
    tape.live(9)
    tape.replay(*range(21))
    tape.end()
    for seq in range(10, 21):
        step = tape.live(seq)
        assert (step.apply, step.reset_reason) == ([], None)
    tape.live(21)
    assert tape.applied == names(*range(22))


def test_a_restart_during_a_replay_forgets_what_was_held():
    tape = Tape()
    tape.live(5)
    tape.live(6)
    step = tape.live(0)
    assert (step.reset_reason, step.apply) == ("sequence went backwards", names(0))
    assert (step.ask_replay_from, tape.sequencer.held_count) == (1, 0)
    tape.end()
    assert tape.applied == names(0)


def test_a_replay_that_starts_beyond_what_was_asked_is_partial():
    tape = Tape()
    tape.live(9)
    steps = tape.replay(4, 5, 6, 7, 8, 9)
    assert (steps[0].missing, steps[0].reset_reason) == ("before", None)
    tape.end()
    assert tape.applied == names(4, 5, 6, 7, 8, 9)


def test_a_replay_that_does_not_reach_back_to_the_gap_says_that_batches_are_missing():
    tape = Tape()
    tape.live(0)
    tape.live(9)
    step = tape.replay(4)[0]
    assert (step.missing, step.reset_reason) == ("gone", None)
    tape.replay(5, 6, 7, 8, 9)
    tape.end()
    assert tape.applied == names(0, 4, 5, 6, 7, 8, 9)


def test_a_damaged_batch_is_asked_for_once_and_its_better_copy_applied():
    tape = Tape()
    tape.live(0)
    step = tape.live_damaged(1)
    assert (step.ask_replay_from, step.gap, step.apply) == (1, False, [])
    tape.live(2)
    tape.replay(1, 2)
    assert (tape.end().missing, tape.applied) == (None, names(0, 1, 2))


def test_a_batch_that_is_damaged_in_the_replay_too_is_applied_as_it_is_and_not_asked_for_again():
    tape = Tape()
    tape.live(0)
    tape.live_damaged(1)
    tape.replay_damaged(1)
    assert tape.end().ask_replay_from is None
    assert tape.live(2).ask_replay_from is None
    assert tape.applied == ["b0", "bad1", "b2"]


def test_a_damaged_batch_that_no_replay_brings_is_applied_in_its_place():
    for end in (Tape.end, Tape.fail):
        tape = Tape()
        tape.live(0)
        tape.live_damaged(1)
        tape.live(2)
        assert (end(tape).ask_replay_from, tape.applied) == (None, ["b0", "bad1", "b2"])


def test_a_whole_live_copy_counts_where_the_replayed_one_is_damaged():
    tape = Tape()
    tape.live(0)
    tape.live(2)
    tape.replay(1)
    tape.replay_damaged(2)
    tape.end()
    assert tape.applied == names(0, 1, 2)


def test_without_a_replay_a_damaged_batch_is_applied_at_once():
    tape = Tape(replay=False)
    assert tape.live_damaged(0).apply == ["bad0"]


def test_a_stream_of_damaged_batches_asks_once_a_batch_at_most():
    tape = Tape()
    asked = []
    for seq in range(20):
        asked.append(tape.live_damaged(seq).ask_replay_from)
        tape.replay_damaged(seq)
        asked.append(tape.end().ask_replay_from)
    assert [number for number in asked if number is not None] == list(range(20))


def test_a_replay_torn_in_the_middle_is_asked_for_again_from_there():
    tape = Tape()
    tape.live(9)
    tape.replay(0, 1, 4, 5)
    assert tape.end().ask_replay_from == 2
    tape.replay(2, 3, 4, 5, 6, 7, 8, 9)
    tape.end()
    assert tape.applied == names(*range(10))


def test_an_empty_replay_lets_the_held_batches_through_as_partial():
    tape = Tape()
    tape.live(9)
    tape.live(10)
    step = tape.end()
    assert (step.missing, step.apply) == ("before", names(9, 10))


def test_a_failed_replay_lets_the_held_batches_through():
    tape = Tape()
    tape.live(0)
    tape.live(2)
    tape.live(3)
    step = tape.fail()
    assert (step.missing, step.apply) == ("unanswered", names(2, 3))
    assert tape.live(4).apply == names(4)


def test_a_hole_among_the_held_batches_is_a_gap_of_its_own():
    tape = Tape()
    tape.live(0)
    tape.live(2)
    tape.live(5)
    tape.replay(1, 2)
    assert tape.end().ask_replay_from == 3
    tape.replay(3, 4, 5)
    tape.end()
    assert tape.applied == names(0, 1, 2, 3, 4, 5)


def test_without_a_replay_a_gap_is_applied_over_and_said():
    tape = Tape(replay=False)
    assert tape.live(3).missing == "before"
    assert tape.live(5).missing == "gone"
    assert tape.applied == names(3, 5)


def test_what_is_held_back_is_bounded():
    tape = Tape(max_held=3)
    tape.live(5)
    for seq in range(6, 8):
        tape.live(seq)
    step = tape.live(8)
    assert (step.missing, step.apply) == ("before", names(5, 6, 7, 8))
    assert tape.sequencer.held_count == 0


def test_replayed_batches_that_nobody_asked_for_are_ignored():
    tape = Tape()
    tape.live(0)
    tape.replay(1, 2)
    tape.end()
    tape.fail()
    assert tape.applied == names(0)


def test_a_lost_publisher_starts_anew():
    tape = Tape()
    tape.live(7)
    tape.sequencer.on_lost()
    assert tape.live(2).ask_replay_from == 0


def test_a_replay_that_begins_after_the_batch_that_asked_for_it_is_not_believed():
    tape = Tape()
    tape.live(0)
    tape.live(5)
    tape.replay(2**62, 2**62 + 1)
    assert tape.end().missing == "gone"
    tape.live(6)
    assert tape.applied == names(0, 5, 6)


def marked(step_of, seq, mark):
    """A batch whose bytes count."""
    return step_of(seq, f"b{seq}", mark=mark)


def test_the_same_bytes_under_the_same_number_are_a_duplicate_and_no_restart():
    sequencer: Sequencer[str] = Sequencer(replay_available=True)
    marked(sequencer.on_live, 0, 70)
    marked(sequencer.on_live, 1, 71)
    for seq in (0, 1):
        step = marked(sequencer.on_live, seq, 70 + seq)
        assert (step.reset_reason, step.apply) == (None, [])
    assert marked(sequencer.on_live, 0, 99).reset_reason == "sequence went backwards"


def test_A03_a_replay_served_by_a_new_publisher_resets_and_begins_again():
    sequencer: Sequencer[str] = Sequencer(replay_available=True)
    marked(sequencer.on_live, 0, 70)
    assert marked(sequencer.on_live, 3, 73).ask_replay_from == 1
    marked(sequencer.on_replay, 1, 81)
    marked(sequencer.on_replay, 2, 82)
    step = marked(sequencer.on_replay, 3, 83)
    assert (step.reset_reason, step.ask_replay_from) == ("the replay is a new publisher's", 0)
    assert (sequencer.applied, sequencer.held_count) == (None, 0)


def test_a_replay_that_ends_just_before_what_was_held_is_asked_for_once_more_and_then_not_believed():
    sequencer: Sequencer[str] = Sequencer(replay_available=True)
    marked(sequencer.on_live, 0, 70)
    marked(sequencer.on_live, 2, 72)
    marked(sequencer.on_replay, 1, 81)
    assert sequencer.on_replay_end().ask_replay_from == 2
    assert sequencer.on_replay_end().missing == "gone"


def test_a_batch_that_differs_from_the_replayed_one_of_its_number_is_a_new_publishers():
    sequencer: Sequencer[str] = Sequencer(replay_available=True)
    assert sequencer.on_connected().ask_replay_from == 0
    marked(sequencer.on_replay, 0, 70)
    marked(sequencer.on_replay, 1, 71)
    sequencer.on_replay_end()
    assert marked(sequencer.on_live, 0, 90).reset_reason is not None


def snapshot_sequencer(**settings) -> Sequencer[str]:
    return Sequencer(replay_available=True, snapshot_available=True, **settings)


def test_A01_rows_of_a_snapshot_never_move_the_cursor_and_its_watermark_does():
    sequencer = snapshot_sequencer()
    for seq in range(501):
        sequencer._snapshot_available = False  # the live cursor comes from batches
        sequencer.on_live(seq, f"b{seq}")
    sequencer._snapshot_available = True
    sequencer.on_live(504, "b504")
    assert sequencer.is_replaying
    step = sequencer.on_replay(503, "b503")
    assert step.ask_snapshot is not None
    sequencer.on_live(505, "b505")
    # 41 rows numbered from 0, taken at 505: what the index did with them is not the sequence's business.
    step = sequencer.on_snapshot(505, step.ask_snapshot)
    assert (sequencer.applied, step.apply, step.gap) == (505, [], False)
    step = sequencer.on_live(506, "b506")
    assert (step.gap, step.ask_replay_from, step.ask_snapshot, step.apply) == (False, None, None, ["b506"])


def test_A01_the_cursor_is_the_larger_of_watermark_and_triggering_number():
    sequencer = snapshot_sequencer()
    ticket = sequencer.on_live(7, "b7").ask_snapshot
    step = sequencer.on_snapshot(6, ticket)
    assert (step.apply, sequencer.applied) == (["b7"], 7)
    sequencer = snapshot_sequencer()
    ticket = sequencer.on_live(7, "b7").ask_snapshot
    step = sequencer.on_snapshot(9, ticket)
    assert (step.apply, sequencer.applied) == ([], 9)
    assert [sequencer.on_live(seq, f"b{seq}").apply for seq in (8, 9, 10)] == [[], [], ["b10"]]


def test_what_lies_between_a_snapshot_and_the_held_batches_is_replayed():
    sequencer = snapshot_sequencer()
    ticket = sequencer.on_live(7, "b7").ask_snapshot
    assert sequencer.on_snapshot(4, ticket).ask_replay_from == 5
    applied = [batch for seq in (5, 6, 7) for batch in sequencer.on_replay(seq, f"b{seq}").apply]
    assert (applied, sequencer.on_replay_end().missing) == (names(5, 6, 7), None)


def test_a_snapshot_that_nobody_waits_for_changes_nothing():
    sequencer = snapshot_sequencer()
    ticket = sequencer.on_live(7, "b7").ask_snapshot
    sequencer.on_lost()
    assert sequencer.on_snapshot(9, ticket).apply == []
    assert sequencer.applied is None


def test_without_its_snapshot_a_late_joiner_asks_from_zero_and_then_goes_on_without():
    sequencer = snapshot_sequencer()
    ticket = sequencer.on_live(7, "b7").ask_snapshot
    assert sequencer.on_snapshot_failed(ticket).ask_replay_from == 0
    step = sequencer.on_replay_end()
    assert (step.missing, step.apply, step.ask_snapshot) == ("before", ["b7"], None)


def test_a_source_whose_snapshots_never_reach_the_live_batches_is_not_asked_for_ever():
    sequencer = snapshot_sequencer()
    step = sequencer.on_live(100, "b100")
    asked = 0
    while step.ask_snapshot is not None:
        asked += 1
        step = sequencer.on_snapshot(4, step.ask_snapshot)
        step = sequencer.on_replay(50, "b50")
    assert (asked, step.missing) == (3, "gone")


def test_batches_that_overflow_while_a_snapshot_is_awaited_are_left_to_it():
    sequencer = snapshot_sequencer(max_held=3)
    ticket = sequencer.on_live(10, "b10").ask_snapshot
    for seq in range(11, 15):
        assert sequencer.on_live(seq, f"b{seq}").ask_snapshot is None
    assert sequencer.held_count < 4
    assert sequencer.on_snapshot(12, ticket).ask_replay_from == 13
