"""Findings for people and for programs."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from router.doctor.findings import Finding, Level

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


def to_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Every finding, and how many there are of each level."""
    return {
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "counts": {level.value: sum(finding.level is level for finding in findings) for level in Level},
    }


def print_table(findings: Sequence[Finding], console: Console, *, shows_all: bool) -> None:
    """A table of what is wrong, of all that was looked at where that is asked for; and one line that sums up."""
    shown = [finding for finding in findings if shows_all or finding.level is not Level.OK]
    if shown:
        table = Table(show_lines=True)
        for column in ("worker", "check", "", "what is", "what to change"):
            table.add_column(column, overflow="fold")
        for finding in shown:
            level = f"[{_STYLES[finding.level]}]{finding.level.value}[/]"
            table.add_row(finding.worker, finding.check.value, level, *map(_plain, (finding.says, finding.change)))
        console.print(table)
    counts = to_json(findings)["counts"]
    workers = len({finding.worker for finding in findings} - {"fleet"})
    console.print(f"{workers} workers: {counts['problem']} problems, {counts['warning']} warnings, {counts['ok']} fine")


def _plain(text: str) -> str:
    """Words of an engine are no markup."""
    return text.replace("[", "\\[")
