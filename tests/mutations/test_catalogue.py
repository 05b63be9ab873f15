"""The catalogue of `make mutate` stands by the source, and its runner tells what it cannot try."""

from pathlib import Path

import pytest
from access_mutations import ACCESS
from api_mutations import API
from catalogue import NATIVE_CODE, PYTHON, Mutation
from fleet_mutations import FLEET
from kernel_mutations import KERNELS
from leg_mutations import LEGS
from pace_mutations import PACES
from placement_mutations import NATIVE_PRICING, PLACEMENT
from run import MutationError, put_in
from wire_mutations import WIRE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "mutation",
    [*PYTHON, *PLACEMENT, *FLEET, *ACCESS, *API, *LEGS, *PACES, *WIRE, *KERNELS, *NATIVE_PRICING],
    ids=lambda mutation: mutation.name,
)
def test_the_text_of_a_mutation_stands_once_in_its_file(mutation):
    """Where the source moved on, move the mutation along: what it breaks still has to turn a test red."""
    assert (ROOT / mutation.path).read_text(encoding="utf-8").count(mutation.find) == 1


def test_every_mutation_has_a_name_of_its_own_and_tests_that_exist():
    every = (*PYTHON, *PLACEMENT, *FLEET, *ACCESS, *API, *LEGS, *PACES, *WIRE, *KERNELS, *NATIVE_CODE, *NATIVE_PRICING)
    assert len({mutation.name for mutation in every}) == len(every)
    assert all((ROOT / test).exists() for mutation in every for test in mutation.tests)


@pytest.mark.parametrize("text", ["", "a = 1\na = 1\n"])
def test_a_text_that_does_not_stand_once_is_an_error_and_changes_nothing(tmp_path, text):
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(MutationError, match=r"stands [02] times in file\.py"):
        put_in(tmp_path, Mutation("n", "file.py", "a = 1", "a = 2", ()))
    assert (tmp_path / "file.py").read_text() == text


def test_a_mutation_is_put_in_and_what_was_there_is_given_back(tmp_path):
    (tmp_path / "file.py").write_text("a = 1\n")
    assert put_in(tmp_path, Mutation("n", "file.py", "a = 1", "a = 2", ())) == "a = 1\n"
    assert (tmp_path / "file.py").read_text() == "a = 2\n"
