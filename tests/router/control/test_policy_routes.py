"""A dry run explains without leaving a trace; the policy and its file can be asked for; audits are metrics."""

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from router.app import Router
from router.config.fleet import build_fleet_config
from router.config.policy import PolicyConfig
from router.control.audit_metrics import AuditCollector
from router.control.reload import PolicyFile
from router.fleet.rank import RankFacts
from router.placement.accuracy import Accuracy
from router.placement.stimuli import FirstToken, FleetChanged, RequestArrived
from wire.ids import RequestId, SessionId, Target, WorkerId

TARGETS = tuple(Target(WorkerId(name), rank) for name in "abc" for rank in range(4))
ASKED = {"model": "toy", "prompt_tokens": 20_000, "session": "s", "held": [{"worker": "b", "tokens": 19_000}]}


@pytest.fixture
def router():
    made = Router(build_fleet_config({"workers": [{"url": "http://a:1"}]}, "fleet.yaml"))
    ranks = tuple(RankFacts(target=target, url="http://x", models=("toy",)) for target in TARGETS)
    made.placer.handle(FleetChanged(now_s=0.0, ranks=ranks))
    yield made
    made.placer.check_invariants()


async def ask(router, method, path, **more):
    transport = httpx.ASGITransport(app=router)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        return await client.request(method, path, **more)


async def test_a_dry_run_tells_every_rank_and_leaves_no_trace(router):
    answer = await ask(router, "POST", "/v1/explain", json=ASKED)
    assert answer.status_code == 200
    told = answer.json()
    assert told["dry_run"] is True
    decision = told["decision"]
    assert decision["target"] == {"worker": "b", "dp_rank": 0}
    assert len(decision["candidates"]) == len(TARGETS)
    assert decision["predicted_cached_tokens"] == 19_000
    assert len(router.placer.ledger) == len(router.placer.homes) == len(router.placer.decisions) == 0


async def test_a_request_gets_what_the_dry_run_said(router):
    dry = (await ask(router, "POST", "/v1/explain", json={**ASKED, "request_id": "r1"})).json()["decision"]
    arrival = RequestArrived(
        now_s=1.0,
        request_id=RequestId("r1"),
        model="toy",
        prompt_tokens=20_000,
        session=SessionId("s"),
        overlaps={Target(WorkerId("b"), 0): 19_000},
    )
    (placed,) = router.placer.handle(arrival)
    assert {"worker": placed.target.worker, "dp_rank": placed.target.dp_rank} == dry["target"]


async def test_a_dry_run_of_what_would_be_refused_says_why(router):
    answer = await ask(router, "POST", "/v1/explain", json={"model": "other", "prompt_tokens": 5})
    assert answer.json()["decision"]["target"] is None
    assert answer.json()["decision"]["reason"] == "no rank serves the model"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt_tokens": -1},
        {"prompt_tokens": "7"},
        {"prompt_tokens": 5, "wrong": 1},
        {"prompt_tokens": 10**30},
        {"prompt_tokens": 5, "held": [{"worker": "a"}]},
        [],
    ],
)
async def test_a_dry_run_of_nonsense_is_refused(router, body):
    assert (await ask(router, "POST", "/v1/explain", json=body)).status_code == 400


async def test_the_policy_is_told_and_without_a_file_cannot_be_read_anew(router):
    told = (await ask(router, "GET", "/v1/policy")).json()
    assert told["policy"]["name"] == "cache_affinity"
    assert told["file"] is None
    answer = await ask(router, "POST", "/v1/policy/reload")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_policy_file")


async def test_a_policy_file_is_read_anew_when_asked_and_refused_whole(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("name: random")
    config = {"workers": [{"url": "http://a:1"}], "policy": {"file": str(path)}}
    router = Router(build_fleet_config(config, "fleet.yaml"))
    assert router.placer.policy.name == "random"
    path.write_text("name: round_robin")
    assert (await ask(router, "POST", "/v1/policy/reload")).json()["policy"]["name"] == "round_robin"
    assert router.placer.policy.name == "round_robin"
    path.write_text("name: none")
    answer = await ask(router, "POST", "/v1/policy/reload")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "policy_refused")
    assert router.placer.policy.name == "round_robin"
    page = (await ask(router, "GET", "/metrics")).text
    assert 'dovecote_router_policy_reloads_total{result="refused"} 1.0' in page
    assert "dovecote_router_policy_file_refused 1.0" in page


def test_audits_stand_on_the_metrics_page(router):
    registry = CollectorRegistry()
    placer = router.placer
    file = PolicyFile(None, PolicyConfig(), placer.change_policy)
    registry.register(AuditCollector(placer, file.watch.counts, lambda: file.watch.problem))
    arrival = RequestArrived(now_s=1.0, request_id=RequestId("r1"), model="toy", prompt_tokens=20_000)
    placer.handle(arrival)
    placer.handle(FirstToken(now_s=1.5, request_id=RequestId("r1"), cached_tokens=64))
    placer.decisions.record_accuracy(RequestId("r1"), Accuracy.UNEXPLAINED)
    page = generate_latest(registry).decode()
    assert 'dovecote_router_audited_cached_tokens_total{accuracy="unexplained",side="actual"} 64.0' in page
    assert 'dovecote_router_audited_error_tokens_total{accuracy="unexplained"} 64.0' in page
    assert 'dovecote_router_audited_ttft_seconds_total{accuracy="unexplained",side="actual"} 0.5' in page
    assert 'dovecote_router_audited_first_tokens_total{accuracy="unexplained"} 1.0' in page
    assert 'dovecote_router_ttft_ratio_bucket{le="+Inf"} 1.0' in page
    assert "dovecote_router_regret_seconds_count 1.0" in page
    assert "dovecote_router_policy_file_refused 0.0" in page
