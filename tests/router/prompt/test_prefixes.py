"""The longest known end that a member goes on from is the one that comparing bytes finds; what is known is bounded."""

from collections import OrderedDict

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router.prompt import prefixes
from router.prompt.prefixes import Beginning, PrefixDigest, digest_prefix

SEED = 3
MOST = 4
#: Messages of few lengths, so that ends of one length differ; braces and brackets within their texts.
MESSAGES = st.sampled_from(['{"a":"b"}', '{"a":"c"}', '{"a":"}"}', "{ }", '{"a":"},{"}'])
LISTS = st.lists(MESSAGES, max_size=4).map(lambda messages: ("[" + ",".join(messages) + "]").encode())


class End(msgspec.Struct, frozen=True, eq=False):
    length: int
    digest: int


class Beginnings(RuleBasedStateMachine):
    """`Beginning` beside a dict of the bytes themselves."""

    def __init__(self):
        super().__init__()
        self.beginning = Beginning()
        self.known = OrderedDict()
        self.most, prefixes.MAX_ENDS_PER_BEGINNING = prefixes.MAX_ENDS_PER_BEGINNING, MOST

    def teardown(self):
        prefixes.MAX_ENDS_PER_BEGINNING = self.most

    @rule(member=LISTS)
    def add(self, member):
        length = prefixes.find_end(member)
        if length is None:
            return
        end = End(length, digest_prefix(member, length, SEED))
        crowded = self.beginning.add(end)
        self.known[member[:length]] = end
        oldest = self.known.popitem(last=False)[1] if len(self.known) > MOST else None
        assert crowded is oldest

    @rule(data=st.data())
    def discard(self, data):
        if self.known:
            start = data.draw(st.sampled_from(list(self.known)))
            self.beginning.discard(self.known.pop(start))

    @rule(member=LISTS)
    def discard_what_another_took_the_place_of(self, member):
        length = prefixes.find_end(member)
        if length is not None:
            self.beginning.discard(End(length, digest_prefix(member, length, SEED)))

    @rule(member=LISTS)
    def find(self, member):
        starts = [start for start in self.known if member.startswith(start)]
        longest = self.known[max(starts, key=len)] if starts else None
        assert self.beginning.find(PrefixDigest(member, SEED)) is longest

    @invariant()
    def lengths_are_those_of_the_ends(self):
        assert self.beginning.lengths == sorted({len(start) for start in self.known})


TestBeginnings = Beginnings.TestCase


@given(text=st.binary(max_size=400), lengths=st.lists(st.integers(0, 400), max_size=8))
def test_digests_of_beginnings_are_those_of_their_bytes(text, lengths):
    digest = PrefixDigest(text, SEED)
    for length in lengths:
        assert digest.at(length) == digest_prefix(text, length, SEED)
