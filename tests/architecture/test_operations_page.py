"""docs/operations.md explains every field of a decision and every class of a prediction."""

import re
from pathlib import Path

import pytest

from router.placement.accuracy import Accuracy
from router.placement.decision import Decision, DecisionRecord
from router.policy.base import CandidateCost
from router.recordings.check import Class

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
#: Shown by other names, and the part of a record that has fields of its own.
INNER = {"costs", "telling", "decision"}
SHOWN_AS = {"candidates", "reason"}


def names_in_first_cells(after, before):
    section = PAGE.split(after)[1].split(before)[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name.rpartition(".")[2].removesuffix("[]") for cell in cells for name in re.findall("`([^`]+)`", cell)}


@pytest.mark.parametrize("shown", [Decision, DecisionRecord, CandidateCost])
def test_every_field_of_a_decision_is_explained(shown):
    explained = names_in_first_cells("### The fields of a decision", "Accuracy classes")
    assert set(shown.__struct_fields__) - INNER <= explained
    assert explained >= SHOWN_AS


def test_every_accuracy_class_is_explained():
    assert {word.value for word in Accuracy} <= names_in_first_cells("Accuracy classes", "### Check a recording")


def test_every_class_of_a_recording_is_explained():
    assert {word.value for word in Class} == names_in_first_cells("### Check a recording", "## Logs")
