"""Every metric that the board and the alert rules ask for stands on the router's or the engine's real page."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from engine_shim.engine.publish.replay import ReplayCounts
from engine_shim.engine.server.metrics import EngineMetrics
from router.metrics_docs import make_router

ROOT = Path(__file__).parents[2]
BOARDS = sorted((ROOT / "dashboards" / "grafana" / "boards").glob("*.json"))
RULES = ROOT / "dashboards" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\bdovecote_[a-z0-9_]+\b")
TYPE_LINE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
#: What the board is for; each must be asked by some panel.
SUBJECTS = {
    "dovecote_engine_cached_tokens_total",
    "dovecote_router_predicted_cached_tokens_total",
    "dovecote_router_actual_cached_tokens_total",
    "dovecote_router_predictions_total",
    "dovecote_router_ttft_seconds_bucket",
    "dovecote_router_placements_total",
    "dovecote_router_stream_trust",
    "dovecote_router_events_total",
    "dovecote_router_errors_total",
    "dovecote_engine_pool_pages",
    "dovecote_router_snapshots_failed_total",
    "dovecote_router_overdue_blocks_total",
    "dovecote_router_worker_parity",
    "dovecote_router_prompt_cache_bytes",
    "dovecote_router_prediction_disagreement",
    "dovecote_router_regret_seconds_bucket",
    "dovecote_router_policy_file_refused",
    "dovecote_router_shadow_choices_total",
    "dovecote_router_kept_states",
    "dovecote_router_collector_pause_seconds_bucket",
    "dovecote_router_queue_waiting",
    "dovecote_router_queue_wait_seconds_bucket",
    "dovecote_router_inter_token_seconds_bucket",
    "dovecote_router_hit_tokens_total",
    "dovecote_router_waiting_seconds",
    "dovecote_router_load_report_age_seconds",
    "dovecote_router_rate_limited_total",
}


def names_on(page: str) -> set[str]:
    return {name + suffix for name, kind in TYPE_LINE.findall(page) for suffix in SUFFIXES[kind]}


@pytest.fixture(scope="module")
def existing() -> set[str]:
    router = make_router()
    router.prompts.close()
    engine_page = generate_latest(EngineMetrics([], lambda _: 0, ReplayCounts()).registry)
    return names_on(router.metrics.to_text().decode()) | names_on(engine_page.decode())


def board_queries(path):
    board = json.loads(path.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def rule_queries():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_board_names_metrics_that_exist(path, existing):
    queries = board_queries(path)
    assert queries
    assert {
        query: set(METRIC.findall(query)) - existing for query in queries if set(METRIC.findall(query)) - existing
    } == {}
    assert all(METRIC.search(query) for query in queries)


def test_every_alert_names_metrics_that_exist(existing):
    queries = rule_queries()
    assert queries
    assert set(METRIC.findall(" ".join(queries))) <= existing


def test_the_board_shows_what_an_operator_looks_for():
    assert set(METRIC.findall(" ".join(query for path in BOARDS for query in board_queries(path)))) >= SUBJECTS


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_panels_have_their_own_ids_places_and_words(path):
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["description"] for panel in panels)


def test_alerts_name_values_that_the_labels_can_have():
    text = RULES.read_text()
    page_words = {"exact", "unexplained", "error", "timed_out", "worker_lost", "rejected", "ready"}
    quoted = {word for group in re.findall(r'\w+=~?"([^"]+)"', text) for word in group.split("|")}
    assert quoted == page_words
