"""The conversion in use is the one whose lengths are the engine's; none is, where none of them are."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.prompt.conversion_choice import RETRY_AFTER, RUN, ConversionChoice

FORMS = {"m": ("a", "b"), "r": ("c",)}


@pytest.fixture
def choice():
    return ConversionChoice(FORMS)


def test_the_first_one_is_used_until_a_length_differs(choice):
    assert choice.choose("toy", "m") == "a"
    assert not choice.judge("toy", "m", "a", is_equal=False)
    assert choice.choose("toy", "m") == "b"
    assert choice.choose("other", "m") == choice.choose(None, "m") == "a"


def test_a_proven_one_is_given_up_after_a_run_of_differences(choice):
    choice.judge("toy", "m", "a", is_equal=True)
    for _ in range(RUN - 1):
        choice.judge("toy", "m", "a", is_equal=False)
    assert choice.choose("toy", "m") == "a"
    choice.judge("toy", "m", "a", is_equal=True)
    for _ in range(RUN):
        choice.judge("toy", "m", "a", is_equal=False)
    assert choice.choose("toy", "m") == "b"


def test_when_none_is_right_none_is_used_for_a_while(choice):
    assert choice.judge("toy", "r", "c", is_equal=False)
    assert [choice.choose("toy", "r") for _ in range(RETRY_AFTER)].count(None) == RETRY_AFTER - 1
    assert choice.choose("toy", "r") == "c"


def test_what_is_known_of_the_engines_decides_which_is_tried_first(choice):
    assert choice.choose("toy", "m", find_likely=lambda: "b") == "b"
    choice.judge("toy", "m", "b", is_equal=False)
    assert choice.choose("toy", "m", find_likely=lambda: "b") == "a"
    assert choice.choose("other", "m", find_likely=lambda: "unheard") == "a"


def test_answers_to_requests_of_another_conversion_say_nothing(choice):
    assert not choice.judge("toy", "m", "b", is_equal=False)
    assert choice.choose("toy", "m") == "a"


class EnginesOfOneForm(RuleBasedStateMachine):
    """Whatever is asked in between, a fleet whose engines convert in one way is found out."""

    @initialize(right=st.sampled_from(["a", "b", None]))
    def start(self, right):
        self.right = right
        self.choice = ConversionChoice(FORMS)
        self.wrong = 0

    @rule(tells=st.booleans())
    def ask(self, tells):
        form = self.choice.choose("toy", "m")
        if form is not None and tells:
            self.wrong += form != self.right
            self.choice.judge("toy", "m", form, is_equal=form == self.right)

    @invariant()
    def few_prompts_are_wrong(self):
        assert getattr(self, "wrong", 0) <= len(FORMS["m"])


EnginesOfOneForm.TestCase.settings = settings(max_examples=50, stateful_step_count=20)
TestEnginesOfOneForm = EnginesOfOneForm.TestCase
