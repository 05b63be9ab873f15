"""Break the source on purpose, one way at a time, and see that the tests meant for it turn red.

`scripts/mutate [WORDS]` runs the mutations whose names hold all the words; without words all of them. Everything
happens in a scratch copy. The exit status is 1 where a mutation stayed green, could not be put in or did not build.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from access_mutations import ACCESS
from api_mutations import API
from catalogue import NATIVE_CODE, PYTHON, Mutation
from fleet_mutations import FLEET
from kernel_mutations import KERNELS
from leg_mutations import LEGS
from pace_mutations import PACES
from placement_mutations import NATIVE_PRICING, PLACEMENT
from wire_mutations import WIRE

ROOT = Path(__file__).parents[2]
#: Whatever an editable install points to would be tested in place of the copy.
PYTEST = (
    "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__];"
    "sys.path.insert(0, ''); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)
FLAGS = ("-x", "-q", "-n0", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly")
GREEN, RED = 0, 1


class MutationError(Exception):
    """A mutation cannot be tried."""


def put_in(folder: Path, mutation: Mutation) -> str:
    """Break a file of the copy; what it said before.

    Raises:
        MutationError: The text to replace does not stand in it just once.
    """
    path = folder / mutation.path
    before = path.read_text(encoding="utf-8")
    if (count := before.count(mutation.find)) != 1:
        raise MutationError(f"its text stands {count} times in {mutation.path}: {mutation.find.strip()!r}")
    path.write_text(before.replace(mutation.find, mutation.put), encoding="utf-8")
    return before


def copy_source(folder: Path) -> None:
    """What git knows or could, and the native modules."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for name in ("prefix_index._core", "router.policy._pricing", "router.prompt._text"):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            shutil.copy2(spec.origin, folder.joinpath(*name.split(".")[:-1]))


def run_tests(folder: Path, tests: Iterable[str]) -> int:
    """Pytest's exit status in the copy; the same examples each time."""
    command = [sys.executable, "-B", "-c", PYTEST, *FLAGS, *tests]
    env = os.environ | {"CI": "true"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (GREEN, RED):
        raise MutationError(f"the tests did not run: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    return done.returncode


def build(folder: Path) -> None:
    """Build the copy's native modules; only what changed is compiled."""
    made = folder / "build/mutations"
    steps = [
        ["cmake", "-S", ".", "-B", str(made), "-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(made)],
        ["cmake", "--install", str(made), "--prefix", "."],
    ]
    for step in steps:
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MutationError(f"{step[1]} failed: {(done.stdout + done.stderr)[-2_000:]}")


def try_out(folder: Path, mutation: Mutation, *, is_native: bool) -> bool:
    """Whether a mutation turned a test red."""
    before = put_in(folder, mutation)
    try:
        if is_native:
            build(folder)
        return run_tests(folder, mutation.tests) == RED
    finally:
        (folder / mutation.path).write_text(before, encoding="utf-8")


def try_all(folder: Path, mutations: Sequence[Mutation], *, is_native: bool) -> int:
    """Mutations that were not caught, each told as it is tried."""
    missed = 0
    for mutation in mutations:
        try:
            verdict = "red" if try_out(folder, mutation, is_native=is_native) else "GREEN, no test sees it"
        except MutationError as error:
            verdict = f"NOT TRIED: {error}"
        missed += verdict != "red"
        sys.stdout.write(f"{mutation.name}: {verdict}\n")
        sys.stdout.flush()
    return missed


def main(words: Sequence[str]) -> int:
    """Exit status."""
    in_python = (*PYTHON, *PLACEMENT, *FLEET, *ACCESS, *API, *LEGS, *PACES, *WIRE, *KERNELS)
    in_native = (*NATIVE_CODE, *NATIVE_PRICING)
    python, native = ([m for m in known if all(w in m.name for w in words)] for known in (in_python, in_native))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_source(folder)
        if native:
            build(folder)
        if run_tests(folder, sorted({test for mutation in (*python, *native) for test in mutation.tests})) != GREEN:
            sys.stderr.write("the tests are red before anything was broken\n")
            return 1
        missed = try_all(folder, python, is_native=False) + try_all(folder, native, is_native=True)
    sys.stdout.write(f"{len(python) + len(native)} mutations, {missed} not caught\n")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
