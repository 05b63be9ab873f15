"""What must hold of a ledger: each reservation in one account, each sum what its parts are, none below zero."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from wire.ids import RequestId, Target

if TYPE_CHECKING:
    from router.placement.ledger import RankAccount
    from router.placement.reservation import Reservation


def check_ledger(
    reservations: Mapping[RequestId, "Reservation"], accounts: Mapping[Target, "RankAccount"], *, open_total: int
) -> None:
    """Raises AssertionError unless every open reservation stands in exactly one account and no sum is negative."""
    problems = []
    if open_total != len(reservations):
        problems.append(f"{open_total} reservations should be open, {len(reservations)} are")
    standing = [name for account in accounts.values() for name in (*account.prefilling, *account.decoding)]
    if sorted(standing) != sorted(reservations):
        problems.append(f"accounts hold {sorted(standing)}, open are {sorted(reservations)}")
    for target, account in accounts.items():
        entries = [*account.prefilling.values(), *account.decoding.values()]
        if not entries:
            problems.append(f"{target} has an account and nothing in it")
        if any(entry.target != target for entry in entries):
            problems.append(f"{target} is charged for another rank's request")
        problems += _find_wrong_sums(target, account)
    if problems:
        raise AssertionError("; ".join(problems))


def _find_wrong_sums(target: Target, account: "RankAccount") -> list[str]:
    prefilling, decoding = account.prefilling.values(), account.decoding.values()
    expected: dict[str, float] = {
        "estimated_s": math.fsum(entry.prefill_s for entry in prefilling),
        "remaining_s": math.fsum(entry.remaining_prefill_s for entry in prefilling),
        "uncached_tokens": sum(entry.uncached_tokens for entry in prefilling),
        "remaining_output_tokens": sum(entry.remaining_output_tokens for entry in decoding),
        "context_tokens": sum(entry.context_tokens for entry in decoding),
        "open_tokens": sum(entry.room_tokens for entry in (*prefilling, *decoding)),
        "joint_output_tokens": sum(entry.joint_output_tokens for entry in (*prefilling, *decoding)),
        "joint_context_tokens": sum(
            entry.joint_output_tokens * entry.context_tokens for entry in (*prefilling, *decoding)
        ),
    }
    wrong = [
        f"{target}: {name} is {getattr(account, name)}, not {sum_}"
        for name, sum_ in expected.items()
        if getattr(account, name) != sum_
    ]
    if min(account.estimated_s, account.remaining_s, *expected.values()) < 0:
        wrong.append(f"{target} has a negative sum")
    return wrong
