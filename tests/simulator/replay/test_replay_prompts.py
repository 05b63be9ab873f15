"""Prompts of a trace: of the recorded lengths, shared where the ids are shared, as chat messages that grow."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_traces import BLOCK_TOKENS, after, conversations, request, trace_of

from simulator.replay.prompts import PromptWriter
from simulator.replay.reuse import find_reusable_ratio


def flat(messages):
    """What a chat template makes of messages, one word a token."""
    return [word for message in messages for word in (f"<{message.role}>", *message.content.split(), "<end>")]


def common(left, right):
    differing = (place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)
    return next(differing, min(len(left), len(right)))


def content_words(flattened, end):
    return sum(not word.startswith("<") for word in flattened[:end])


def test_text_and_ids_have_the_recorded_length():
    trace = trace_of(request("a", [1, 2, 3], tail=5))
    writer = PromptWriter(trace, seed=1)
    (only,) = trace.requests
    assert len(writer.write_text(only).split()) == len(writer.write_ids(only)) == 29
    assert content_words(flat(writer.write_messages(only)), None) == 29


def test_scaled_prompts_have_their_share_of_the_recorded_length():
    trace = trace_of(request("a", list(range(200)), tail=5))
    writer = PromptWriter(trace, seed=1, prompt_ratio=0.1)
    (only,) = trace.requests
    assert len(writer.write_ids(only)) == round(0.1 * 1_605)
    assert len(writer.write_text(only).split()) == pytest.approx(160, abs=30)
    assert content_words(flat(writer.write_messages(only)), None) == len(writer.write_text(only).split())


def test_equal_seeds_give_equal_prompts_and_others_share_nothing():
    trace = conversations(2, 3)
    last = trace.requests[-1]
    first, again, other = (PromptWriter(trace, seed=seed) for seed in (1, 1, 2))
    assert first.write_messages(last) == again.write_messages(last)
    assert first.write_ids(last) == again.write_ids(last)
    assert common(first.write_ids(last), other.write_ids(last)) == 0
    assert first.write_text(last).split()[:4] != other.write_text(last).split()[:4]


def test_ids_come_from_the_range_asked_for():
    trace = conversations(1, 4)
    writer = PromptWriter(trace, seed=1, token_ids=range(7, 12))
    assert set(writer.write_ids(trace.requests[-1])) == {7, 8, 9, 10, 11}


def test_a_shared_head_is_the_system_message_and_a_turn_adds_answer_and_question():
    trace = conversations(2, 3)
    writer = PromptWriter(trace, seed=1)
    first, second, third = (writer.write_messages(each) for each in trace.requests[:3])
    other = writer.write_messages(trace.requests[3])
    assert [message.role for message in first] == ["system", "user"]
    assert first[0] == other[0]
    assert first[1] != other[1]
    assert [message.role for message in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert third[:3] == second[:3]
    assert len(third[2].content.split()) == 8


def test_an_answer_is_as_long_as_recorded_also_where_it_ends_inside_a_block_or_behind_them():
    trace = trace_of(
        request("a", [1], output=3),
        request("b", [1, 2], after(0), output=13),
        request("c", [1, 2, 3], after(1), tail=7, output=2),
        request("d", [1, 2, 3], after(2), tail=6),
    )
    writer = PromptWriter(trace, seed=1)
    sizes = [[len(message.content.split()) for message in writer.write_messages(each)] for each in trace.requests]
    assert sizes == [[8], [8, 3, 5], [8, 3, 5, 13, 2], [8, 3, 5, 8, 6]]


def random_traces():
    """Conversations that grow, fall back to an earlier point, and branch; ids name prefixes, as in real traces."""
    step = st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 4), st.integers(0, 7), st.integers(1, 40))
    return st.lists(step, min_size=1, max_size=12).map(_build)


def _build(steps):
    ids, prompts, requests = {}, {}, []
    for serial, (session, dropped, grown, tail, output) in enumerate(steps):
        path = prompts.get(session, ("h", "h2"))
        path = (*path[: max(1, len(path) - dropped)], *((session, serial, place) for place in range(grown)))
        prompts[session] = path
        blocks = [ids.setdefault(path[: end + 1], len(ids)) for end in range(len(path))]
        requests.append(request(str(serial), blocks, session=f"s{session}", tail=tail, output=output))
    return trace_of(*requests)


@given(random_traces())
def test_two_prompts_are_equal_up_to_their_last_common_block(trace):
    writer = PromptWriter(trace, seed=1)
    texts = [flat(writer.write_messages(each)) for each in trace.requests]
    for left, left_text in zip(trace.requests, texts, strict=True):
        for right, right_text in zip(trace.requests, texts, strict=True):
            shared_blocks = common(left.blocks, right.blocks)
            # The last word of a prompt without a tail may be the user's, where its block is not.
            least = BLOCK_TOKENS * shared_blocks - 1
            assert content_words(left_text, common(left_text, right_text)) >= least


@given(random_traces(), st.sampled_from([1.0, 0.3, 0.05]))
def test_messages_alternate_end_with_the_user_and_are_never_empty(trace, ratio):
    writer = PromptWriter(trace, seed=1, prompt_ratio=ratio)
    for each in trace.requests:
        messages = writer.write_messages(each)
        roles = [message.role for message in messages]
        assert roles[-1] == "user"
        assert "system" not in roles[1:]
        assert all(left != right for left, right in pairwise(roles))
        assert all(message.content for message in messages)


@given(random_traces())
def test_no_word_is_lost_between_messages(trace):
    writer = PromptWriter(trace, seed=1)
    for each in trace.requests:
        joined = " ".join(message.content for message in writer.write_messages(each))
        assert joined == writer.write_text(each)


def test_the_reusable_share_is_that_of_blocks_met_before():
    assert find_reusable_ratio(trace_of(request("a", [1, 2]), request("b", [1, 2, 3], tail=8))) == pytest.approx(2 / 6)
