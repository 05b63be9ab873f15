"""What a request's failures are counted as: its conversation, else the request itself."""

import msgspec
import pytest

from router.prompt import PreparedPrompt
from router.proxy.asked import TELLING_BYTES, Asked
from wire.ids import RequestId, SessionId

LONG = bytes(range(256)) * (TELLING_BYTES // 64)


def ask(data, **more):
    prompt = PreparedPrompt(prompt_tokens=8)
    return Asked(request_id=RequestId("r"), model=None, prompt=prompt, data=data, **more)


@pytest.mark.parametrize("data", [b"", b"{}", LONG])
def test_a_request_that_comes_again_is_one_cause_under_any_name(data):
    again = msgspec.structs.replace(ask(bytes(bytearray(data))), request_id=RequestId("s"))
    assert ask(data).cause == again.cause


@pytest.mark.parametrize("other", [b"x" + LONG[1:], LONG[:-1] + b"x", LONG[:-1], LONG + LONG[:1]])
def test_bodies_that_differ_in_beginning_end_or_length_are_causes_of_their_own(other):
    assert ask(LONG).cause != ask(other).cause


def test_bodies_of_no_great_length_are_told_apart_wherever_they_differ():
    bodies = {bytes(0 if at != place else 1 for at in range(64)) for place in range(64)}
    assert len({ask(data).cause for data in bodies}) == len(bodies)


def test_a_conversation_is_one_cause_whatever_its_bodies_and_tenants_never_are():
    first, second = (ask(data, session=SessionId("a"), tenant="t") for data in (b"one", b"two"))
    assert first.cause == second.cause
    assert ask(b"one", tenant="t").cause != ask(b"one", tenant="u").cause
