"""What sending needs beside the other parts of the data plane: rooms, budget, limits, tasks that outlive a request."""

import random
import secrets

import msgspec

from router.proxy.legs.aborts import Background
from router.proxy.legs.pair import PhaseLimits
from router.proxy.legs.retries import Retries, RetryLimits
from router.proxy.legs.rooms import Rooms


class SendingParts(msgspec.Struct, frozen=True, kw_only=True):
    """Shared by all requests of one router."""

    rooms: Rooms
    retries: Retries
    limits: PhaseLimits = PhaseLimits()
    background: Background = msgspec.field(default_factory=Background)


def make_sending(retries: RetryLimits | None = None, limits: PhaseLimits | None = None) -> SendingParts:
    """Parts of a router that starts now: its rooms are those of no other, and of none that it was before."""
    return SendingParts(
        rooms=Rooms(secrets.randbits(15), secrets.randbits(38)),
        retries=Retries(retries or RetryLimits(), random.random),
        limits=limits or PhaseLimits(),
    )
