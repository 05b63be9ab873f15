"""Envelopes of hints and their outcomes: read or refused, and what is read is written back alike."""

from guided import fuzz, instrumented

with instrumented():
    from wire import hints
    from wire.malformed import Malformed

ENVELOPE = hints.KvHints("m", (hints.KvAction("a", "kv.pin"), hints.KvAction("b", "kv.other", payload={"x": [1]})))
SEEDS = [
    hints.encode_hints(ENVELOPE),
    *map(hints.encode_outcome, hints.reject_all(ENVELOPE, "not supported")),
    b'{"message_id":"m","actions":[],"protocol_version":"0.2"}',
]


def check(data: bytes) -> None:
    """Every envelope gets one outcome an action, and both survive a round trip."""
    read = hints.decode_hints(data)
    if not isinstance(read, Malformed):
        outcomes = hints.reject_all(read, "not supported")
        assert len(outcomes) == len(read.actions)
        assert [hints.decode_outcome(hints.encode_outcome(outcome)) for outcome in outcomes] == list(outcomes)
        again = hints.decode_hints(hints.encode_hints(read))
        assert not isinstance(again, Malformed)
        assert [action.action_id for action in again.actions] == [action.action_id for action in read.actions]
    outcome = hints.decode_outcome(data)
    if not isinstance(outcome, Malformed):
        assert hints.decode_outcome(hints.encode_outcome(outcome)) == outcome


if __name__ == "__main__":
    fuzz(check, SEEDS)
