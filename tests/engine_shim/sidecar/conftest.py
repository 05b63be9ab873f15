"""Sockets that are closed again, engines and routers that are stopped again."""

from contextlib import ExitStack

import pytest
import zmq
from beside import FakeEngine, RouterSide, sidecar_beside


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def bench(context):
    """Makes engines, sidecars and routers, and ends them in the other order."""
    with ExitStack() as stack:

        class Bench:
            @staticmethod
            def engine(**arguments):
                engine = FakeEngine(context, **arguments)
                stack.callback(engine.close)
                return engine

            @staticmethod
            def sidecar(engine, **settings):
                return stack.enter_context(sidecar_beside(engine, **settings))

            @staticmethod
            def router(url, **arguments):
                router = RouterSide(url, **arguments)
                stack.callback(router.feed.stop)
                return router

        yield Bench
