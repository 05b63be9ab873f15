"""Sidecars that publish to a real Redis, and routers that read there."""

import logging

import pytest
from beside import wait_until
from test_sidecar_service import Play, blocks, read_snapshot, ready, stored

from tests.redis_server import RedisServer
from wire.events import AllBlocksCleared, BlockRemoved
from wire.redis_entries import name_stream

NAME = "dovecote:test"
STREAM = name_stream(NAME, 0)


@pytest.fixture
def server(tmp_path):
    server = RedisServer(tmp_path).start()
    yield server
    server.kill()


@pytest.fixture
def fleet(bench, server):
    """An engine that told of three blocks, a sidecar that publishes, and a router that reads from Redis only."""
    engine = bench.engine()
    play = Play(engine)
    play(AllBlocksCleared())
    play(stored(0, 3))
    url, service = bench.sidecar(engine, redis_url=server.url, redis_name=NAME)
    wait_until(lambda: service.is_ready and blocks(service) == 3 and service.redis.problem is None, "a sidecar")
    router = bench.router(url, redis_url=server.url)
    wait_until(lambda: state(router) == ("exact", 3), "an exact router")
    return engine, play, service, router, url


def state(router):
    view = router.view()
    return view.trust.value, view.blocks


def is_in_step(service, router):
    return service.redis.problem is None and router.view().last_seq == service.hub.to_views()[0].next_seq - 1


def test_a_router_that_reads_from_redis_holds_what_the_mirror_holds(fleet, server):
    _, play, service, router, url = fleet
    play(stored(3, 2), BlockRemoved(block_hashes=(104,)))
    play(stored(4))
    wait_until(lambda: blocks(service) == 5 and is_in_step(service, router), "a router in step")
    assert router.records() == set(read_snapshot(url)[1])
    assert (router.view().gaps, router.view().snapshots_loaded) == (0, 1)
    with server.client() as client:
        assert client.xlen(STREAM) == service.hub.to_views()[0].next_seq
        assert 0 < client.ttl(STREAM) <= 86_400


def test_several_routers_read_one_stream(fleet, bench, server):
    _, play, service, router, url = fleet
    others = [bench.router(url, redis_url=server.url) for _ in range(3)]
    play(stored(3, 4))
    wait_until(lambda: all(state(each) == ("exact", 7) for each in (router, *others)), "exact routers")
    assert service.redis.problem is None


def test_an_outage_keeps_what_is_known_and_says_that_it_is_stale(fleet, server):
    _, play, service, router, _ = fleet
    server.kill()
    wait_until(lambda: router.view().trust.value == "stale", "a stale router")
    assert router.view().blocks == 3
    play(stored(3, 2))
    wait_until(lambda: blocks(service) == 5 and service.redis.problem is not None)
    server.start()
    wait_until(lambda: state(router) == ("exact", 5), "what came meanwhile")
    play(stored(5))
    wait_until(lambda: state(router) == ("exact", 6), "what comes after it")


def test_what_the_mirror_forgot_during_an_outage_comes_by_snapshot(bench, server):
    engine = bench.engine()
    play = Play(engine)
    play(stored(0, 3))
    url, service = bench.sidecar(engine, redis_url=server.url, redis_name=NAME, buffer_batches=2)
    wait_until(lambda: service.is_ready and blocks(service) == 3)
    router = bench.router(url, redis_url=server.url)
    wait_until(lambda: state(router) == ("exact", 3), "an exact router")
    server.kill()
    for place in range(3, 9):
        play(stored(place))
    wait_until(lambda: blocks(service) == 9)
    server.start()
    wait_until(lambda: state(router) == ("exact", 9), "a snapshot")
    assert router.view().snapshots_loaded == 2


def test_a_sidecar_that_starts_anew_under_the_same_name_is_a_new_life(fleet, bench, server):
    engine, play, service, router, _ = fleet
    service.hub.on_news = lambda: None
    service.redis.stop()
    url, again = bench.sidecar(engine, redis_url=server.url, redis_name=NAME)
    ready(again)
    play(stored(3))
    wait_until(lambda: is_in_step(again, router) and router.view().resets >= 1, "the new life")
    late = bench.router(url, redis_url=server.url)
    wait_until(lambda: state(late) == ("exact", 4), "a late router")


def test_streams_are_bounded(bench, server):
    engine = bench.engine()
    play = Play(engine)
    _, service = bench.sidecar(engine, redis_url=server.url, redis_name=NAME, buffer_batches=50)
    ready(service)
    for place in range(600):
        play(stored(place))
    wait_until(lambda: blocks(service) == 600)
    with server.client() as client:
        wait_until(lambda: int(client.xinfo_stream(STREAM)["last-generated-id"].split(b"-")[1]) >= 600)
        # Redis trims whole nodes of some hundred entries.
        assert client.xlen(STREAM) < 250


def test_what_others_write_into_a_stream_is_counted_and_read_over(fleet, server):
    _, play, service, router, _ = fleet
    with server.client() as client:
        life = client.xrevrange(STREAM, count=1)[0][0].split(b"-")[0].decode()
        last = service.hub.to_views()[0].next_seq
        client.xadd(STREAM, {b"x": b"junk"}, id=f"{life}-{last + 1}")
    wait_until(lambda: router.view().skipped, "a count")
    # The mirror's next batch has a number that is taken: it starts a new life above it.
    play(stored(3))
    wait_until(lambda: state(router) == ("exact", 4), "the next batch")
    assert router.view().skipped == {"frame frame count": 1}


def test_the_password_of_redis_is_in_no_log(bench, caplog):
    caplog.set_level(logging.DEBUG)
    engine = bench.engine()
    url, service = bench.sidecar(engine, redis_url="redis://:secret-word@127.0.0.9:1/0", redis_name=NAME)
    ready(service)
    router = bench.router(url, redis_url="redis://:secret-word@127.0.0.9:1/0")
    wait_until(lambda: service.redis.problem not in (None, "Redis was not asked yet"), "a problem")
    wait_until(lambda: router.view().trust.value in {"stale", "lost"})
    assert "secret-word" not in caplog.text
    assert "secret-word" not in service.redis.problem
