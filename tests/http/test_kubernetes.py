"""Workers of a Kubernetes service come and go as its EndpointSlices say, whatever becomes of the watch."""

import asyncio
import json
import logging

import pytest
from kubernetes_api import FakeApi, endpoint, make_slice, serving
from proxy_harness import eventually, in_process

from router.config.discovery import KubernetesDiscovery
from router.control.kubernetes import KubernetesSource
from router.control.registry import Listed


@pytest.fixture
async def api():
    async with serving(FakeApi()) as api:
        yield api


@pytest.fixture
def token_file(tmp_path, api):
    path = tmp_path / "token"
    path.write_text(api.token)
    return path


class Watched:
    """A source that runs, and what it said last."""

    def __init__(self, api, token_file, **more):
        self.source = KubernetesSource(
            KubernetesDiscovery(service="engines", api_url=api.url, token_file=str(token_file), **more),
            chance=lambda: 0.0,
        )
        self.fleet = None

    def hear(self, word):
        assert isinstance(word, Listed)
        self.fleet = {entry.worker: entry for entry in word.entries}

    async def __aenter__(self):
        self.task = asyncio.create_task(self.source.run(self.hear))
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_what_is_listed_and_watched_becomes_workers(api, token_file):
    api.put(make_slice("s1", endpoint("10.0.0.1", "a", ready=True)))
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and api.watches)
        assert watched.fleet["a"].config.url == "http://10.0.0.1:30000"
        api.put(make_slice("s2", endpoint("10.0.0.2", "b", ready=True)))
        await eventually(lambda: set(watched.fleet) == {"a", "b"})
        api.delete("s1")
        await eventually(lambda: set(watched.fleet) == {"b"})
        assert api.lists == 1


async def test_D05_an_endpoint_that_terminates_is_drained_and_D06_one_that_is_not_ready_gets_nothing(api, token_file):
    api.put(make_slice("s", endpoint("10.0.0.1", "a", ready=True), endpoint("10.0.0.2", "b")))
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and api.watches)
        assert [(entry.ready, entry.draining) for entry in watched.fleet.values()] == [(True, False)] * 2
        terminating = endpoint("10.0.0.1", "a", ready=False, serving=True, terminating=True)
        api.put(make_slice("s", terminating, endpoint("10.0.0.2", "b", ready=False)))
        await eventually(lambda: not watched.fleet["b"].ready)
        assert watched.fleet["a"].draining
        assert not watched.fleet["b"].draining


async def test_D04_what_went_while_the_watch_was_broken_is_gone_after_the_next_list(api, token_file):
    api.put(make_slice("s1", endpoint("10.0.0.1", "a")))
    api.put(make_slice("s2", endpoint("10.0.0.2", "b")))
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and api.watches)
        api.cut(b'{"type": "ADDED", "obj')
        del api.slices["s2"]
        await eventually(lambda: set(watched.fleet) == {"a"})
        assert api.lists == 2


async def test_D04_410_is_answered_with_a_list_at_the_start_of_a_watch_and_within_it(api, token_file):
    api.put(make_slice("s1", endpoint("10.0.0.1", "a")))
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and api.watches)
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
        api.slices.clear()
        api.cut(json.dumps(gone).encode() + b"\n")
        await eventually(lambda: watched.fleet == {})
        await eventually(lambda: api.watches)
        api.slices["s3"] = make_slice("s3", endpoint("10.0.0.3", "c"))
        api.version += 1
        api.forget()
        api.cut()
        await eventually(lambda: set(watched.fleet) == {"c"})
        assert watched.source.problem is None


async def test_a_watch_that_ends_well_goes_on_from_its_last_version_bookmarks_included(api, token_file):
    api.put(make_slice("s1", endpoint("10.0.0.1", "a")))
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and api.watches)
        api.version = 900
        api.bookmark()
        api.cut()
        await eventually(lambda: sum("watch" in query for query in api.asked) == 2 and api.watches)
        assert api.asked[-1]["resourceVersion"] == "900"
        assert api.asked[-1]["allowWatchBookmarks"] == "true"
        assert api.lists == 1


async def test_all_is_listed_anew_now_and_then_whatever_the_watch_says(api, token_file):
    api.put(make_slice("s1", endpoint("10.0.0.1", "a")))
    async with Watched(api, token_file, resync_s=0.2) as watched:
        await eventually(lambda: watched.fleet is not None)
        api.slices.clear()
        api.cut()
        await eventually(lambda: watched.fleet == {})


async def test_long_lists_come_in_pages_and_the_token_is_read_anew(api, token_file):
    for number in range(7):
        api.put(make_slice(f"s{number}", endpoint(f"10.0.0.{number}", f"p{number}")))
    api.page_size = 3
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and len(watched.fleet) == 7)
        api.token = "renewed"
        token_file.write_text("renewed\n")
        await eventually(lambda: api.watches)
        api.cut(b"garbage\n")
        await eventually(lambda: api.lists == 2 and watched.source.problem is None and api.watches)


async def test_while_the_server_refuses_what_was_known_stays_and_the_problem_is_told(api, token_file, caplog):
    caplog.set_level(logging.WARNING)
    api.put(make_slice("s1", endpoint("10.0.0.1", "a")))
    async with Watched(api, token_file) as watched:
        await eventually(lambda: watched.fleet is not None and api.watches)
        api.token = "another"
        api.cut(b"garbage\n")
        await eventually(lambda: "401" in (watched.source.problem or ""))
        assert "may not list or watch" in watched.source.problem
        assert set(watched.fleet) == {"a"}
        said = [record for record in caplog.records if record.getMessage().startswith("kubernetes_failed")]
        assert len(said) == 1


async def test_a_router_serves_the_workers_of_a_service_and_shows_what_is_wrong(api, token_file, engines):
    port = int(engines[0].url.rpartition(":")[2])
    api.put(make_slice("s1", endpoint("127.0.0.1", "pod-a", ready=True), port=port))
    discovery = {"kubernetes": [{"service": "engines", "api_url": api.url, "token_file": str(token_file)}]}
    async with in_process([], discovery=discovery) as client:
        assert (await client.chat()).headers["x-dovecote-worker"] == "pod-a"
        api.delete("s1")
        await eventually(lambda: not client.router.fleet.workers)
        assert (await client.chat()).status_code == 503
        assert (await client.get("/health")).status_code == 503
