"""What `dovecote doctor` does once its configuration is read: look, judge, print; gives the exit code."""

import asyncio
import json
import sys

from rich.console import Console

from router.config.fleet import FleetConfig
from router.doctor.diagnose import diagnose
from router.doctor.findings import Finding, Level
from router.doctor.show import print_table, to_json
from router.doctor.survey import find_workers, look_at_all


async def examine(config: FleetConfig, limit_s: float) -> tuple[Finding, ...]:
    """Every finding of a fleet.

    Args:
        config: The fleet.
        limit_s: Longest wait for each answer.
    """
    entries, problems = await find_workers(config, limit_s)
    seen = await look_at_all(config, entries, limit_s)
    return (*problems, *diagnose(seen))


def run_doctor(config: FleetConfig, limit_s: float, *, shows_all: bool, is_strict: bool, as_json: bool) -> int:
    """Look at a fleet and print what is wrong; 1 where something is.

    Args:
        config: The fleet.
        limit_s: Longest wait for each answer.
        shows_all: Print what is fine, too.
        is_strict: Warnings count like problems.
        as_json: One JSON object instead of a table.
    """
    findings = asyncio.run(examine(config, limit_s))
    if as_json:
        sys.stdout.write(json.dumps(to_json(findings), indent=2) + "\n")
    else:
        print_table(findings, Console(), shows_all=shows_all)
    bad = {Level.PROBLEM, Level.WARNING} if is_strict else {Level.PROBLEM}
    return int(any(finding.level in bad for finding in findings))
