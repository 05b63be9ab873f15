"""docs/faults.md lists exactly the public faults that have a test of their name."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def find_tested() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for fault in re.findall(r"def test_([A-G]\d\d)_", path.read_text(encoding="utf-8")):
            found.setdefault(fault, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_the_page_lists_every_tested_fault_with_its_source_and_test():
    rows = {}
    for line in (ROOT / "docs/faults.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| ([A-G]\d\d) \|", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert "https://github.com/" in cells[2], line
            rows[match[1]] = set(re.findall(r"tests/[\w/]+\.py", cells[3]))
    assert rows == find_tested()
