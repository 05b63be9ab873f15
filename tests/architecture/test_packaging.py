"""What the project promises about its install holds in pyproject.toml."""

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from prefix_index.hashing import native_available
from router.policy.native import pricing_available
from router.prompt.native import text_available

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CAN_BUILD = shutil.which("g++") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


@pytest.mark.skipif(not CAN_BUILD, reason="there is no C++ compiler, or no header of Python")
def test_the_native_modules_are_there_where_they_could_be_built():
    """Else what they promise would go untested in silence; scripts/setup builds them."""
    assert native_available()
    assert pricing_available()
    assert text_available()


def test_the_router_alone_depends_on_no_tensor_library():
    named = " ".join(PROJECT["project"]["dependencies"])
    assert not any(word in named for word in ("torch", "triton", "numpy"))


def test_every_dependency_has_an_upper_bound():
    extras = PROJECT["project"]["optional-dependencies"].values()
    listed = PROJECT["project"]["dependencies"] + [one for extra in extras for one in extra]
    assert [one for one in listed if "<" not in one] == []


def test_every_command_of_another_package_can_be_loaded():
    declared = PROJECT["project"]["entry-points"]["dovecote.commands"]
    installed = {entry.name: entry for entry in entry_points(group="dovecote.commands")}
    assert set(declared) == set(installed)
    assert all(callable(entry.load()) for entry in installed.values())


def test_router_and_timed_engine_load_without_torch():
    code = "import sys, router.cli, router.app, engine_shim.engine.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
