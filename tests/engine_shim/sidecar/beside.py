"""A fake engine on real sockets, a sidecar beside it, and a router's event feed behind that."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import uvicorn
import zmq

from engine_shim.sidecar.app import build_app
from engine_shim.sidecar.service import SidecarService, SidecarSettings
from prefix_index import NaivePrefixIndex
from router.control.facts import find_rank_events, read_sidecar_facts
from router.events import EventFeed, FeedLimits, RankSource
from tests.ports import take_port
from tests.waiting import PATIENCE_S, wait_until
from wire.frames import encode_replay, encode_replay_end, parse_replay_request
from wire.ids import Target, WorkerId
from wire.redis_entries import name_stream
from wire.snapshot import to_records

MODEL = "capture"


def get(url):
    return httpx.get(url, timeout=PATIENCE_S)


class Sockets:
    """Event sockets of one rank, with a replay buffer that a thread serves."""

    def __init__(self, context, port=0, replay_port=0, *, with_topic=False):
        self.buffer, self.asked, self.with_topic = [], [], with_topic
        self.pub = self._bind(context.socket(zmq.PUB), port or take_port())
        self.router = self._bind(context.socket(zmq.ROUTER), replay_port or take_port())
        self.port, self.replay_port = (
            int(each.get(zmq.LAST_ENDPOINT).decode().rpartition(":")[2]) for each in (self.pub, self.router)
        )
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @staticmethod
    def _bind(socket, port):
        def bound():
            try:
                socket.bind(f"tcp://127.0.0.1:{port}")
            except zmq.ZMQError:
                return False
            return True

        wait_until(bound, "a free port")
        return socket

    def publish(self, frames, *, lost=False):
        self.buffer = [*self.buffer, frames]
        if not lost:
            self.pub.send_multipart(frames)

    def close(self):
        self._closing = True
        self._thread.join()
        self.pub.close(linger=0)
        self.router.close(linger=0)

    def _serve(self):
        while not self._closing:
            if not self.router.poll(5):
                continue
            identity, *request = self.router.recv_multipart()
            start = parse_replay_request(request)
            self.asked.append(start)
            for topic, number, payload in list(self.buffer):
                seq = int.from_bytes(number, "big")
                if seq >= start:
                    shown = topic.decode() if self.with_topic else None
                    self.router.send_multipart([identity, *encode_replay(seq, payload, topic=shown)])
            self.router.send_multipart([identity, *encode_replay_end(topic_frame=self.with_topic)])


class FakeEngine:
    """HTTP answers by path, and sockets of every rank."""

    def __init__(self, context, *, dp_size=1, dialect="vllm"):
        self.context = context
        self.ranks = [Sockets(context, with_topic=dialect == "vllm") for _ in range(dp_size)]
        self.answers = {"/health": "", "/v1/models": {"data": [{"id": MODEL, "root": "/models/tiny"}]}}
        if dialect == "vllm":
            self.answers["/kv_event_sources"] = {
                str(rank): {
                    "endpoint": f"tcp://*:{each.port}", "replay_endpoint": f"tcp://*:{each.replay_port}", "topic": ""
                }
                for rank, each in enumerate(self.ranks)
            }  # fmt: skip
            self.answers["/metrics"] = (
                'vllm:cache_config_info{block_size="32",num_gpu_blocks="100"} 1.0\n'
                'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
                'vllm:num_requests_waiting{engine="0",model_name="m"} 2.0\n'
                'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
            )
        else:
            (only,) = self.ranks
            self.answers["/server_info"] = {
                "version": "0.5", "page_size": 4, "dp_size": 1, "api_key": "secret",
                "kv_events": {
                    "publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": only.port, "topic": "",
                    "block_size": 4, "dp_size": 1, "replay_endpoint_port_base": only.replay_port,
                },
            }  # fmt: skip
            self.answers["/v1/loads"] = {"loads": [{"dp_rank": 0, "num_running_reqs": 5}]}
        self.server = self._serve_http()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def restart(self):
        """New processes at the same addresses: numbers from 0, nothing kept."""
        for place, rank in enumerate(self.ranks):
            rank.close()
            self.ranks[place] = Sockets(self.context, rank.port, rank.replay_port, with_topic=rank.with_topic)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for rank in self.ranks:
            rank.close()

    def _serve_http(self):
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                answer = answers.get(self.path)
                body = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(404 if answer is None else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server


@contextmanager
def sidecar_beside(engine, **settings):
    """A sidecar's URL and service, served by a thread."""
    service = SidecarService(SidecarSettings(engine_url=engine.url, probe_interval_s=0.1, **settings))
    config = uvicorn.Config(build_app(service), host="127.0.0.1", port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the sidecar")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


class RouterSide:
    """A router's feed that follows a sidecar."""

    def __init__(self, url, **arguments):
        self.index = NaivePrefixIndex()
        self.feed = EventFeed(self.index, limits=FeedLimits(replay_limit_s=2.0), **arguments)
        self.feed.start()
        info = wait_until(lambda: get(f"{url}/server_info").json(), "the sidecar's facts")
        self.facts = read_sidecar_facts(info, None, url=url)
        for rank in range(self.facts.dp_size):
            self.follow(rank)

    def follow(self, rank):
        found = find_rank_events(self.facts, rank)
        self.feed.connect(
            RankSource(
                target=Target(WorkerId("w"), rank), model=self.facts.models[0], endpoint=found.endpoint,
                replay_endpoint=found.replay_endpoint, topic=found.topic, snapshot_url=found.snapshot_url,
                is_bigram=self.facts.is_bigram,
                redis_stream=None if self.facts.redis_name is None else name_stream(self.facts.redis_name, rank),
            )
        )  # fmt: skip

    def view(self, rank=0):
        return next(view for view in self.feed.to_views() if view.target.dp_rank == rank)

    def records(self, rank=0):
        """What the index holds of a rank, whatever its runs; for when nothing comes any more."""
        return {record for run in self.index.dump(Target(WorkerId("w"), rank)) for record in to_records(run)}
