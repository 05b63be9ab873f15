"""An index that must not contradict itself at the end of any test, and one rank on it."""

import pytest
from rank_words import Rank

from prefix_index import NaivePrefixIndex


@pytest.fixture
def index():
    made = NaivePrefixIndex()
    yield made
    made.check_invariants()


@pytest.fixture
def rank(index):
    return Rank(index)
