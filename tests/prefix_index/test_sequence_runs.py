"""Numbers of batches judged in runs."""

from prefix_index.sequence import Sequencer


def test_a_run_goes_on_from_what_was_applied_and_ends_before_a_gap():
    sequencer: Sequencer[str] = Sequencer(replay_available=True)
    sequencer.on_live(0, "b0")
    assert sequencer.count_in_order([1, 2, 3, 5, 6]) == 3
    sequencer.on_live_run([71, 72, 73])
    assert (sequencer.applied, sequencer.count_in_order([4])) == (3, 1)
    assert [sequencer.count_in_order([seq]) for seq in (0, 3, 5)] == [0, 0, 0]
    assert sequencer.on_live(5, "b5").ask_replay_from == 4
    assert sequencer.count_in_order([4, 5]) == 0


def test_batches_of_a_run_are_known_when_they_come_again():
    sequencer: Sequencer[str] = Sequencer(replay_available=True)
    sequencer.on_live_run(range(1_000))
    assert sequencer.on_live(999, "b999", mark=999).reset_reason is None
    assert sequencer.on_live(0, "b0", mark=7).reset_reason == "sequence went backwards"


def test_numbers_that_were_held_and_given_up_begin_no_run():
    sequencer: Sequencer[str] = Sequencer(replay_available=False, snapshot_available=True, max_held=2)
    sequencer.on_live_run([1])
    for seq in range(3, 9):
        step = sequencer.on_live(seq, f"b{seq}")
    for _ in range(9):
        step = sequencer.on_snapshot_failed(sequencer.ticket or 0)
    assert (step.apply, sequencer.is_recovering, sequencer.applied) == ([], False, 0)
    assert sequencer.count_in_order([1, 2]) == 0
    assert sequencer.on_live(1, "b1").reset_reason == "sequence went backwards"
