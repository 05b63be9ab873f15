"""Prometheus and Grafana files: valid, and in step with docker-compose.yml."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "dashboards" / "prometheus"
GRAFANA = ROOT / "dashboards" / "grafana"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def scrape_targets():
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    return {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}


def flag(command, name):
    return command[command.index(name) + 1]


def test_the_router_and_every_engine_of_the_compose_file_are_scraped(compose):
    wanted = {
        "dovecote-router": [f"router:{flag(compose['router']['command'], '--port')}"],
        "dovecote-engine": [
            f"{name}:{flag(service['command'], '--port')}" for name, service in compose.items() if "engine" in name
        ],
    }
    assert scrape_targets() == wanted


def test_the_router_is_given_every_engine_of_the_compose_file(compose):
    command = compose["router"]["command"]
    urls = command[command.index("--workers") + 1 :]
    assert urls == [f"http://{target}" for target in scrape_targets()["dovecote-engine"]]


def test_ports_are_published_on_loopback_only(compose):
    published = [port for service in compose.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_rule_files_exist():
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert all((PROMETHEUS / name).is_file() for name in config["rule_files"])


def test_every_mounted_folder_exists(compose):
    mounts = [volume.split(":")[0] for service in compose.values() for volume in service.get("volumes", [])]
    assert mounts
    assert all((ROOT / mount).is_dir() for mount in mounts)


def test_boards_use_the_data_source_that_is_provisioned():
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    uids = {source["uid"] for source in sources}
    for path in (GRAFANA / "boards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            assert {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])} <= uids


def test_boards_are_loaded_from_the_folder_that_compose_mounts(compose):
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "dovecote.yml").read_text())["providers"][0]
    assert any(provider["options"]["path"] == volume.split(":")[1] for volume in compose["grafana"]["volumes"])


def test_promtool_accepts_the_scrape_config_and_the_rules():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    check = subprocess.run(
        [promtool, "check", "config", PROMETHEUS / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_promtool_accepts_every_query_of_the_board(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    boards = [json.loads(path.read_text()) for path in (GRAFANA / "boards").glob("*.json")]
    queries = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"q:{n}", "expr": query.replace("$__rate_interval", "1m")} for n, query in enumerate(queries)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    check = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr
