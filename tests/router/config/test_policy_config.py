"""A policy file is taken whole or refused whole; pages, schemas and examples say what the code says."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from router import cli
from router.config.docs import describe_fleet_schema, describe_policy_schema, find_field_words, render_page
from router.config.fleet import FleetConfig
from router.config.policy import Coefficients, PolicyConfig, PolicyName, PolicyWeights, load_policy_config
from router.errors import ConfigError
from router.policy.catalogue import build_policies

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "policy.yaml"


def refusal(text):
    with pytest.raises(ConfigError) as caught:
        load_policy_config(text, "policy.yaml")
    return str(caught.value)


def test_an_empty_file_is_the_default_policy():
    assert load_policy_config("", "policy.yaml") == PolicyConfig()


def test_the_example_says_the_defaults_of_every_key():
    data = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert load_policy_config(EXAMPLE.read_text(encoding="utf-8"), "policy.yaml") == PolicyConfig()
    assert set(data["weights"]) == set(PolicyWeights.model_fields)
    assert set(data["coefficients"]) == set(Coefficients.model_fields)


def test_the_shadow_of_the_examples_comment_is_valid_too():
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("# shadow:"))
    lines[start:] = [line.removeprefix("# ") for line in lines[start:]]
    acting, shadow = build_policies(load_policy_config("\n".join(lines), "policy.yaml"))
    assert (acting.name, shadow.name) == ("cache_affinity", "overlap_linear")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weights: {wait: .nan}", "policy.yaml: weights.wait: nan: Input should be a finite number"),
        (
            "weights: {wiat: 1}",
            (
                "policy.yaml: weights.wiat: 1: unknown key; did you mean 'wait'? "
                "valid here: admission, balance, decode, returns, reuse, settle, spread, stall, transfer, wait"
            ),
        ),
        (
            "coefficients: {reuse_probability: 2}",
            "policy.yaml: coefficients.reuse_probability: 2: Input should be less than or equal to 1",
        ),
        ("[]", "policy.yaml: []: the top must be a mapping with keys such as name, weights, coefficients"),
        ("shadow: {name: x}", "policy.yaml: shadow.name: 'x': valid here: " + ", ".join(PolicyName)),
        ("a: 1\na: 2", "policy.yaml: line 2: no valid YAML: key 'a' stands twice"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_would_be_valid(text, message):
    assert refusal(text) == message


def test_a_knob_that_a_policy_does_not_have_is_refused():
    config = load_policy_config("{name: overlap_linear, settings: {prefil_load_scale: 4}}", "policy.yaml")
    with pytest.raises(ConfigError, match="did you mean 'prefill_load_scale'"):
        build_policies(config)


def test_every_key_of_the_policy_has_words():
    for model in (PolicyWeights, Coefficients):
        assert set(find_field_words(model)) == set(model.model_fields)


def test_the_page_is_what_the_code_says():
    assert (ROOT / "docs/config.md").read_text(encoding="utf-8") == render_page()


def test_the_page_speaks_of_values_as_yaml_writes_them():
    rows = [line.split(" | ") for line in render_page().splitlines() if line.startswith("| `")]
    mappings = {row[0].strip("| `") for row in rows if row[1] == "mapping"}
    assert mappings == {"settings", "weights"}
    assert not [row for row in rows if row[2] in {"`True`", "`False`"} or row[2].startswith("`(")]


@pytest.mark.parametrize(("name", "describe"), [("fleet", describe_fleet_schema), ("policy", describe_policy_schema)])
def test_the_published_schemas_are_those_of_the_code(name, describe):
    page = (ROOT / f"docs/{name}.schema.json").read_text(encoding="utf-8")
    assert json.loads(page) == json.loads(json.dumps(describe()))
    printed = CliRunner().invoke(cli.main, ["check-config", "--schema", name])
    assert (printed.exit_code, printed.stdout) == (0, page)


def test_a_schema_describes_its_keys():
    schema = describe_policy_schema()
    assert schema["additionalProperties"] is False
    assert "seconds of work ahead" in schema["$defs"]["PolicyWeights"]["properties"]["wait"]["description"]


def check(*arguments):
    return CliRunner().invoke(cli.main, ["check-config", *map(str, arguments)])


def test_good_files_are_told_apart():
    result = check(EXAMPLE, ROOT / "examples/fleet.yaml")
    assert result.exit_code == 0
    assert result.stdout == (
        f"{EXAMPLE}: a good policy configuration\n{ROOT / 'examples/fleet.yaml'}: a good fleet configuration\n"
    )


def test_a_file_of_keys_is_checked_as_one_and_never_shown(tmp_path):
    good, bad = tmp_path / "keys.yaml", tmp_path / "bad.yaml"
    good.write_text(f'keys: [{{name: a, hash: "sha256:{"0" * 64}"}}]')
    bad.write_text("keys: [{name: a, hash: a-key-pasted-in-the-wrong-place}]")
    assert check(good).stdout == f"{good}: a good keys configuration\n"
    refused = check(bad)
    assert (refused.exit_code, "keys.0.hash: needs sha256:" in refused.stderr) == (2, True)
    assert "pasted" not in refused.stderr


@pytest.mark.parametrize("text", ["listen: {port: 1}", "access: {anonymous: true}"])
def test_a_file_with_keys_of_the_fleet_is_judged_as_the_fleets(tmp_path, text):
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(text)
    assert "workers: no worker given" in check(fleet).stderr


def test_every_bad_file_is_named_and_the_exit_status_is_2(tmp_path):
    fleet, policy = tmp_path / "fleet.yaml", tmp_path / "policy.yaml"
    fleet.write_text('workers: [{url: "x"}]')
    policy.write_text("weights: {wait: -1}")
    result = check(fleet, policy, tmp_path / "none.yaml", EXAMPLE)
    assert result.exit_code == 2
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == ["error"] * 3
    assert f"{EXAMPLE}: a good policy configuration" in result.stdout


@pytest.mark.parametrize("arguments", [[], ["--schema", "other"]])
def test_without_a_file_or_for_an_unknown_schema_it_says_what_is_wanted(arguments):
    assert check(*arguments).exit_code == 2


def test_a_fleet_is_good_only_with_a_good_policy_file_beside_it(tmp_path):
    fleet, policy = tmp_path / "fleet.yaml", tmp_path / "policy.yaml"
    fleet.write_text('{workers: [{url: "http://a:1"}], policy: {file: policy.yaml}}')
    assert check(fleet).exit_code == 2
    policy.write_text("name: random")
    assert check(fleet).exit_code == 0
    config = cli.read_config(fleet, {}, {})
    assert config.policy.file == str(policy.absolute())
    policy.write_text("name: randm")
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        cli.read_config(fleet, {}, {})


def test_a_policy_comes_from_a_file_or_from_the_section_not_from_both():
    with pytest.raises(ValueError, match="leave out one of the two keys"):
        FleetConfig.model_validate(
            {"workers": [{"url": "http://a:1"}], "policy": {"file": "policy.yaml", "weights": {"wait": 2.0}}}
        )
