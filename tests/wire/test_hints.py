"""The hints envelope and its outcomes."""

import msgspec
import pytest

from wire.hints import (
    MAX_ACTIONS,
    MAX_ENVELOPE_BYTES,
    HintOutcome,
    HintStatus,
    KvAction,
    KvHints,
    decode_hints,
    decode_outcome,
    encode_hints,
    encode_outcome,
    reject_all,
)
from wire.malformed import Malformed

HINTS = KvHints("m1", (KvAction("a1", "kv.pin", "1.0", {"ttl_s": 30}), KvAction("a2", "kv.fetch")))


def test_an_envelope_reads_back_as_written():
    assert decode_hints(encode_hints(HINTS)) == HINTS


def test_foreign_action_types_and_keys_are_kept_or_ignored():
    body = (
        b'{"protocol_version":"0.1","message_id":"m","actions":[{"action_id":"a","action_type":"x.y","new":1}],"z":2}'
    )
    assert decode_hints(body) == KvHints("m", (KvAction("a", "x.y"),))


def test_every_action_of_an_unsupported_envelope_is_rejected_once():
    outcomes = reject_all(HINTS, "not supported")
    assert [outcome.action_id for outcome in outcomes] == ["a1", "a2"]
    assert {outcome.status for outcome in outcomes} == {HintStatus.REJECTED}
    assert decode_outcome(encode_outcome(outcomes[0])) == HintOutcome("m1", "a1", HintStatus.REJECTED, "not supported")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"message_id":"","actions":[]}',
        b'{"message_id":"m","actions":{}}',
        b'{"message_id":"m","actions":[{"action_id":1,"action_type":"x"}]}',
        b"[" * 100_000,
    ],
)
def test_an_envelope_that_makes_no_sense_is_a_value(body):
    assert decode_hints(body) == Malformed("kv_hints")


def test_an_envelope_of_another_version_or_over_its_limits_is_refused():
    assert decode_hints(b'{"protocol_version":"9","message_id":"m","actions":[]}') == Malformed("protocol version")
    assert decode_hints(b" " * (MAX_ENVELOPE_BYTES + 1)) == Malformed("payload size")
    actions = [{"action_id": "a", "action_type": "t"}] * (MAX_ACTIONS + 1)
    assert decode_hints(msgspec.json.encode({"message_id": "m", "actions": actions})) == Malformed("kv_hints")


@pytest.mark.parametrize("body", [b"", b'{"message_id":"m","action_id":"a","status":"maybe"}'])
def test_an_outcome_that_makes_no_sense_is_a_value(body):
    assert decode_outcome(body) == Malformed("hint outcome")


def test_an_outcome_over_the_limit_is_refused():
    assert decode_outcome(b" " * (MAX_ENVELOPE_BYTES + 1)) == Malformed("payload size")
