"""What a rank holds of text is what a list of chunks in the order of their last use would hold."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from prefix_index.hashing import pack_hashes
from router.prompt.held_chunks import HeldChunks
from wire.block_hash import block_hashes

MOST = 12
PROMPTS = st.lists(st.integers(0, 2), max_size=9)


def chain(tokens):
    return block_hashes(tokens, 1, 7)


class Held(RuleBasedStateMachine):
    """Holds the tree against one list of chunks, the one used longest ago first."""

    def __init__(self):
        super().__init__()
        self.held, self.listed, self.seen = HeldChunks(MOST), [], [[]]

    @rule(tokens=PROMPTS)
    def use(self, tokens):
        hashes = chain(tokens)
        self.held.use(pack_hashes(hashes))
        kept = [each for each in self.listed if each not in hashes]
        self.listed = (kept + hashes[::-1])[-MOST:]
        self.seen.append(hashes)

    @rule(tokens=PROMPTS, chunk=st.integers(0, 9))
    def forget_from(self, tokens, chunk):
        hashes = chain(tokens)
        self.held.forget_from(pack_hashes(hashes), chunk)
        if chunk < len(hashes) and hashes[chunk] in self.listed:
            self.listed = self.listed[self.listed.index(hashes[chunk]) + 1 :]

    @rule(tokens=PROMPTS)
    def count(self, tokens):
        self.agree(chain(tokens))

    @invariant()
    def holds_the_same(self):
        assert len(self.held) == len(self.listed)
        for hashes in self.seen[-6:]:
            self.agree(hashes)

    def agree(self, hashes):
        assert self.held.count(pack_hashes(hashes)) == sum(each in self.listed for each in hashes)


TestHeld = Held.TestCase


def test_a_prompt_longer_than_all_that_is_kept_leaves_its_beginning():
    held, hashes = HeldChunks(MOST), chain(range(MOST + 5))
    held.use(pack_hashes(hashes))
    assert held.count(pack_hashes(hashes)) == len(held) == MOST
