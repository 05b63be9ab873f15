"""A module that says of itself that it is pure stands in the contract that holds it to that."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("wire", "prefix_index", "router", "engine_shim")
_PURE = re.compile(r"\bPure\b[.:]")


def read_contract():
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = [each for each in linter["contracts"] if each["name"].startswith("pure packages")]
    return contract["source_modules"]


def find_modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def test_what_calls_itself_pure_is_held_to_it():
    pure = tuple(read_contract())
    said = [name for name, path in find_modules() if _PURE.search(ast.get_docstring(ast.parse(path.read_text())) or "")]
    assert len(said) > 30
    assert [name for name in said if not any(name == each or name.startswith(f"{each}.") for each in pure)] == []


def test_every_module_of_the_contract_is_there():
    modules = {name for name, _ in find_modules()}
    assert [name for name in read_contract() if name not in modules] == []
