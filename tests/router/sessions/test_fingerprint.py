"""Requests that name no session are of the conversation that they go on from."""

from hypothesis import given
from hypothesis import strategies as st

from router.sessions.fingerprint import MIN_PROMPT_TOKENS, Fingerprints
from wire.block_hash import block_hashes

LONG = MIN_PROMPT_TOKENS


def test_turns_that_append_are_one_session():
    known = Fingerprints()
    first = known.identify([1, 2, 3], LONG)
    assert first == "chain-0000000000000003"
    assert known.identify([1, 2, 3, 4, 5], LONG) == first
    assert known.identify([1, 2, 3, 4, 5, 6], LONG) == first


def test_the_last_block_may_hold_a_generation_prompt_that_goes():
    known = Fingerprints()
    first = known.identify([1, 2, 3], LONG)
    assert known.identify([1, 2, 30, 31], LONG) == first


def test_the_longest_known_conversation_is_taken():
    known = Fingerprints()
    known.identify([1, 2, 3], LONG)
    other = known.identify([9, 8, 7], LONG)
    assert known.identify([9, 8, 7, 6], LONG) == other


def test_a_second_way_to_go_on_is_a_conversation_of_its_own():
    known = Fingerprints()
    shared = known.identify([1, 2, 3], LONG)
    assert known.identify([1, 2, 3, 4, 5], LONG) == shared
    fork = known.identify([1, 2, 3, 7, 8], LONG)
    assert fork != shared
    assert known.identify([1, 2, 3, 7, 8, 9], LONG) == fork
    assert known.identify([1, 2, 3, 4, 5, 6], LONG) == shared


def test_the_same_request_again_is_the_same_session():
    known = Fingerprints()
    assert known.identify([1, 2, 3], LONG) == known.identify([1, 2, 3], LONG)


def test_every_router_gives_a_conversation_the_same_name():
    assert Fingerprints().identify([5, 6], LONG) == Fingerprints().identify([5, 6], LONG)


def test_short_prompts_have_no_session():
    known = Fingerprints()
    assert known.identify([1, 2], MIN_PROMPT_TOKENS - 1) is None
    assert known.identify([], LONG) is None
    assert len(known) == 0


@given(chains=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), max_size=60))
def test_what_is_remembered_is_bounded(chains):
    known = Fingerprints(max_ends=8)
    for chain in chains:
        assert known.identify(chain, LONG)
        assert len(known) <= 8


@given(prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), max_size=40))
def test_the_conversation_is_the_one_that_a_look_at_every_block_finds(prompts):
    known, ends, nexts = Fingerprints(), {}, {}
    for tokens in prompts:
        hashes = block_hashes(tokens, 1, 7)
        place = next((at for at in reversed(range(len(hashes))) if hashes[at] in ends), None)
        if (
            place is not None
            and place + 1 < len(hashes)
            and nexts.get(hashes[place], hashes[place + 1]) != hashes[place + 1]
        ):
            place = None
        session = f"chain-{hashes[-1]:016x}" if place is None else ends[hashes[place]]
        assert known.find(hashes, LONG) == session == known.identify(hashes, LONG)
        if place is not None and place + 1 < len(hashes):
            nexts[hashes[place]] = hashes[place + 1]
        for block in hashes[-2:]:
            if ends.get(block) != session:
                nexts.pop(block, None)
            ends[block] = session
