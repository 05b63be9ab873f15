"""A small fleet behind a placer, fed with stimuli."""

from collections.abc import Iterable, Iterator

import pytest

from router.config.policy import Coefficients, PolicyWeights
from router.fleet.rank import RankFacts
from router.placement.homes import name_home
from router.placement.instructions import Instruction
from router.placement.ledger import Ledger
from router.placement.placer import Placer, PlacerSettings
from router.placement.stimuli import (
    FirstToken,
    FleetChanged,
    LoadReported,
    Outcome,
    OutputProgressed,
    RequestArrived,
    RequestEnded,
)
from router.policy.catalogue import build_policy
from wire.ids import RequestId, SessionId, Target, WorkerId


def rank_facts(target: Target, **changes) -> RankFacts:
    given = {"url": f"http://{target.worker}:30000", "models": ("toy",), **changes}
    return RankFacts(target=target, **given)


class World:
    """Speaks to a placer in few words."""

    def __init__(self, policy="cache_affinity", *, weights=None, costs=None, ledger=None, seed=7, **settings):
        chosen = build_policy(policy, weights or PolicyWeights(), costs or Coefficients())
        ledger = Ledger() if ledger is None else ledger
        self.placer = Placer(policy=chosen, rng_seed=seed, settings=PlacerSettings(**settings), ledger=ledger)

    def fleet(self, targets: Iterable[Target], now_s=0.0, **changes) -> None:
        facts = tuple(rank_facts(target, **changes) for target in targets)
        assert self.placer.handle(FleetChanged(now_s=now_s, ranks=facts)) == ()

    def arrive(self, name: str, now_s=0.0, *, prompt_tokens=1_000, model="toy", session=None, **more) -> Instruction:
        arrival = RequestArrived(
            now_s=now_s,
            request_id=RequestId(name),
            model=model,
            prompt_tokens=prompt_tokens,
            session=None if session is None else SessionId(session),
            **more,
        )
        (instruction,) = self.placer.handle(arrival)
        return instruction

    def first_token(self, name: str, now_s=0.0, cached_tokens=None) -> None:
        token = FirstToken(now_s=now_s, request_id=RequestId(name), cached_tokens=cached_tokens)
        assert self.placer.handle(token) == ()

    def progress(self, name: str, output_tokens: int, now_s=0.0) -> None:
        stimulus = OutputProgressed(now_s=now_s, request_id=RequestId(name), output_tokens=output_tokens)
        assert self.placer.handle(stimulus) == ()

    def end(self, name: str, now_s=0.0, outcome=Outcome.DONE, **more) -> None:
        assert self.placer.handle(RequestEnded(now_s=now_s, request_id=RequestId(name), outcome=outcome, **more)) == ()

    def serve(self, name: str, now_s=0.0, **more) -> Target:
        """A whole request, over at once."""
        target = self.arrive(name, now_s, **more).target
        self.first_token(name, now_s)
        self.end(name, now_s)
        return target

    def report(self, target: Target, now_s=0.0, *, running=0, waiting=0, **more) -> None:
        stimulus = LoadReported(now_s=now_s, target=target, running_requests=running, waiting_requests=waiting, **more)
        assert self.placer.handle(stimulus) == ()

    def home(self, session: str, now_s=0.0, model="toy") -> Target | None:
        return self.placer.homes.find(name_home(SessionId(session), model), now_s)

    def totals(self, target: Target, now_s=0.0):
        return self.placer.ledger.totals(target, now_s)


@pytest.fixture
def make_world() -> Iterator:
    """Builds worlds; each one's invariants are checked at the end."""
    worlds: list[World] = []

    def make(*args, **kwargs) -> World:
        world = World(*args, **kwargs)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.placer.check_invariants()


@pytest.fixture
def ranks() -> tuple[Target, ...]:
    """Two workers of two ranks."""
    return tuple(Target(WorkerId(worker), rank) for worker in ("a", "b") for rank in (0, 1))


@pytest.fixture
def world(make_world, ranks) -> World:
    """The cost policy before two workers of two ranks."""
    made = make_world()
    made.fleet(ranks)
    return made


@pytest.fixture
def facts():
    """Builds the facts of a rank."""
    return rank_facts
