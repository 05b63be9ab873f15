"""What the fuzz targets share: instrumented imports where atheris runs them, and the loop itself.

A target is a module with `check(data)`, which raises on a fault, and `SEEDS`, inputs to start from. Run as a script it
is driven by atheris and takes libFuzzer's flags; imported, it is a plain function that any test can call.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ["wire", "prefix_index", "router"]


def instrumented() -> AbstractContextManager[object]:
    """Around the imports of what is to be fuzzed: atheris sees which branches an input takes."""
    is_script = Path(sys.argv[0]).resolve().parent == Path(__file__).parent
    if not is_script or find_spec("atheris") is None:
        return nullcontext()
    # Atheris instruments what the path finder finds: it has to come before that of an editable install.
    sys.path.insert(0, str(ROOT))
    sys.meta_path.sort(key=lambda finder: "editable" in type(finder).__module__)
    return import_module("atheris").instrument_imports(include=PACKAGES)


def fuzz(check: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Run a target until libFuzzer's flags say stop; a fault leaves its input in a file that libFuzzer names."""
    if find_spec("atheris") is None:
        raise SystemExit("needs atheris: .venv/bin/python -m pip install --group fuzz")
    atheris = import_module("atheris")
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        # Folders that the caller names come first: libFuzzer writes what it finds into them.
        atheris.Setup([*sys.argv, corpus], check, enable_python_coverage=True)
        atheris.Fuzz()
