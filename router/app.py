"""The composition root: the only place that makes the parts of a router and connects them.

Takes a configuration, gives one ASGI application. Order of a life: event thread, upstream connections, first probe
of every worker, requests; and back in the other order.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import randbits, token_bytes
from typing import Any

from fastapi import FastAPI
from starlette.routing import Match

from prefix_index import make_index
from prefix_index.hashing import native_available
from router.access import OPERATOR, AccessGate, KeyRing
from router.access.principal import ANONYMOUS
from router.access.tenants import Tenancy
from router.config.access import AccessConfig, Isolation
from router.config.fleet import FleetConfig
from router.config_files import check_policy, read_salt_secret
from router.control.audit_metrics import AuditCollector
from router.control.fleet import FleetWatch
from router.control.fleet_metrics import FleetCollector
from router.control.keys_file import WatchedKeys, build_key_routes
from router.control.load_metrics import LoadCollector
from router.control.policy_routes import build_policy_routes
from router.control.readiness import Readiness, build_readiness_routes
from router.control.registrations import Registrations
from router.control.reload import PolicyFile
from router.control.routes import build_control_app
from router.control.source_list import make_sources
from router.control.worker_routes import build_worker_routes
from router.events import EventFeed
from router.fleet.agreement import Agreement
from router.guard import Guard
from router.lookout import Lookout
from router.metrics import RouterMetrics
from router.openapi import publish_page
from router.placement.placer import Placer, PlacerSettings
from router.placement.settings import RequestLimit
from router.policy.catalogue import build_policies
from router.policy.native import pricing_available
from router.prompt import PromptCatalogue
from router.prompt.native import text_available
from router.proxy.admit import Admission
from router.proxy.alike import glance_available
from router.proxy.asgi import serve_asgi
from router.proxy.bounds import Bounds
from router.proxy.client import Endpoint, Scope
from router.proxy.headers import lines_available
from router.proxy.interrupt import ExchangeWatch
from router.proxy.legs.pair import PhaseLimits
from router.proxy.legs.parts import SendingParts, make_sending
from router.proxy.legs.retries import RetryLimits
from router.proxy.pool import PooledUpstream
from router.proxy.ports import ProxyLimits, ProxyParts
from router.proxy.routes import HotRoutes
from router.proxy.upstream import Exchange, Upstream
from router.tls import make_worker_context
from router.tracing import make_tracing
from wire.ids import WorkerId

_log = logging.getLogger("dovecote.app")


class Router:
    """A router as one ASGI application, with its parts in reach of those who embed it."""

    def __init__(self, config: FleetConfig, *, rng_seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """Make every part; nothing runs before the lifespan starts.

        Args:
            config: The fleet.
            rng_seed: Seed of tie-breaks.
            clock: Seconds of all that is placed and timed.
        """
        self.config = config
        self._clock = clock
        self.metrics = RouterMetrics()
        worker_tls = make_worker_context(config.worker_tls)
        self.events = EventFeed(
            make_index(name_key=randbits(64)),
            redis_url=None if config.redis is None else config.redis.url,
            tls=worker_tls,
            on_reconnect=self._report_reconnect,
        )
        self.agreement = Agreement()
        self.readiness = Readiness()
        self._loop: asyncio.AbstractEventLoop | None = None
        policy_path = None if config.policy.file is None else Path(config.policy.file)
        policy = config.policy if policy_path is None else check_policy(policy_path)
        acting, shadow = build_policies(policy)
        self.placer = Placer(policy=acting, shadow=shadow, rng_seed=rng_seed, settings=_make_settings(config))
        self.prompts = PromptCatalogue(block_sizes=self._find_block_sizes, has_bigram=self._has_bigram)
        self.fleet = self._make_fleet(config, worker_tls)
        self._upstream = _LateUpstream()
        self._sending = _make_sending(config)
        self._worker_tls = worker_tls
        self._lookout = Lookout()
        self.control: FastAPI = build_control_app(
            fleet=self.fleet,
            placer=self.placer,
            metrics=self.metrics,
            read_streams=self.events.to_views,
            read_inflight=self._count_running,
            read_agreement=self.agreement.find,
            lifespan=self._live,
            clock=clock,
        )
        self.policy_file = PolicyFile(policy_path, policy, self.placer.change_policy)
        self.control.include_router(build_policy_routes(self.policy_file))
        self._add_routes(config)
        publish_page(self.control)
        self._tracing = make_tracing(config.tracing)
        self.admission = Admission(config.queue.to_settings(), self.metrics, clock)
        self._app = HotRoutes(self._proxy_parts(), self.control)
        self.keys = _make_keys(config.access, self._take_keys)
        self.control.include_router(build_key_routes(self.keys))
        self.gate = _make_gate(config, self.keys.ring, self._app.is_client_path)
        self.guard = Guard(self._app, self.gate, self.metrics)
        self._serve_control = serve_asgi(self.control, config.limits.body_bytes)
        self._show_metrics()

    def _make_fleet(self, config: FleetConfig, worker_tls: ssl.SSLContext | None) -> FleetWatch:
        return FleetWatch(
            config,
            placer=self.placer,
            events=self.events,
            prompts=self.prompts,
            agreement=self.agreement,
            clock=self._clock,
            tls=worker_tls,
            on_left=self.metrics.forget_ranks,
            sources=make_sources(config.discovery),
        )

    def _take_keys(self, ring: KeyRing) -> None:
        self.gate.ring = ring
        self.admission.rates.forget(frozenset(principal.name for principal in ring.principals()))

    def _add_routes(self, config: FleetConfig) -> None:
        self.control.include_router(build_readiness_routes(self.readiness, self.fleet.count_taking))
        registrations = Registrations(
            config.registration,
            self.fleet.registry,
            self.fleet.apply,
            checks_certificates=not config.worker_tls.insecure,
        )
        self.control.include_router(build_worker_routes(self.fleet, registrations))

    def _show_metrics(self) -> None:
        """What the metrics page reads of the parts at each scrape."""
        self.metrics.watch_streams(self.events.to_views)
        self.metrics.watch_inflight(self._count_running)
        self.metrics.watch_agreement(self.agreement.find_all)
        self.metrics.watch_health(self.fleet.find_health)
        self.metrics.watch_parity(self.fleet.find_parity)
        self.metrics.registry.register(FleetCollector(self.placer, self.fleet))
        self.metrics.registry.register(LoadCollector(self.placer, self._clock))
        self.metrics.registry.register(
            AuditCollector(self.placer, self.policy_file.watch.counts, lambda: self.policy_file.watch.problem)
        )
        self.metrics.queue_waiting.set_function(lambda: len(self.admission.queue))
        self.metrics.keys_file_refused.set_function(lambda: float(self.keys.watch.problem is not None))
        self.metrics.kept_states.set_function(lambda: len(self.placer.pins))
        self.metrics.prompt_cache_tokens.set_function(lambda: self.prompts.held_tokens)
        self.metrics.prompt_cache_bytes.set_function(lambda: self.prompts.held_bytes + self._app.held_bytes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One ASGI call."""
        await self.guard(scope, receive, send)

    def find_endpoint(self, scope: Scope) -> Endpoint:
        """What serves a call on a connection of our own server, guarded as any other."""
        error = self.guard.check(scope)
        if error is not None:
            return partial(self.guard.refuse, error)
        return self._app.find_endpoint(scope) or self._serve_control

    def _report_reconnect(self, worker: WorkerId) -> None:
        """Carry the feed's word into the event loop, which may have ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.fleet.report_reconnect, worker)

    def _proxy_parts(self) -> ProxyParts:
        limits = ProxyLimits(
            body_bytes=self.config.limits.body_bytes,
            first_byte_s=self.config.timeouts.first_byte_s,
            idle_s=self.config.timeouts.idle_s,
            request_s=self.config.timeouts.request_s,
            bounds=Bounds(**self.config.bounds.model_dump()),
        )
        return ProxyParts(
            placer=self.placer,
            reuse=self.events,
            fleet=self.fleet,
            prompts=self.prompts,
            upstream=self._upstream,
            admission=self.admission,
            metrics=self.metrics,
            limits=limits,
            sending=self._sending,
            lookout=self._lookout,
            clock=self._clock,
            agreement=self.agreement,
            tracing=self._tracing,
            tenancy=_make_tenancy(self.config.access),
            forwards_keys=self.config.access.forwards_keys,
            forwarded=self.config.forward.prefixes,
            has_own_route=self._has_own_route,
        )

    def _has_own_route(self, path: str) -> bool:
        scope = {"type": "http", "path": path, "method": "GET"}
        return any(route.matches(scope)[0] is not Match.NONE for route in self.control.routes)

    def count_running(self) -> int:
        """Requests that are placed and not ended."""
        return sum(self._app.running.count().values())

    def end_running(self) -> None:
        """Stop every call that is being served, and tell its client."""
        for limited in self._lookout:
            if isinstance(limited, ExchangeWatch):
                limited.shut_down()

    def _count_running(self) -> dict[Any, int]:
        known = {target: 0 for worker in self.fleet.workers.values() for target in worker.targets}
        return known | self._app.running.count()

    def _find_block_sizes(self) -> set[int]:
        return self.events.block_sizes() | self.fleet.find_block_sizes()

    def _has_bigram(self) -> bool:
        return self.fleet.has_bigram()

    @asynccontextmanager
    async def _live(self, _app: FastAPI) -> AsyncIterator[None]:
        if not (
            native_available() and pricing_available() and text_available() and lines_available() and glance_available()
        ):
            _log.warning(
                "native_module_missing effect='index, hashes, prices, bodies, heads and streams run in Python, slowly'"
            )
        self._loop = asyncio.get_running_loop()
        self.events.start()
        upstream = PooledUpstream(connect_s=self.config.timeouts.connect_s, lookout=self._lookout, tls=self._worker_tls)
        self._upstream.inner = upstream
        try:
            await self.fleet.start()
            self.policy_file.watch.start()
            self.keys.watch.start()
            try:
                yield
            finally:
                await self.keys.watch.stop()
                await self.policy_file.watch.stop()
                await self.fleet.stop()
        finally:
            await self._sending.background.close()
            await upstream.close()
            self.prompts.close()
            self.events.stop()
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)


def _make_keys(access: AccessConfig, take: Callable[[KeyRing], None]) -> WatchedKeys:
    path = None if access.keys_file is None else Path(access.keys_file)
    return WatchedKeys(tuple(key.to_key() for key in access.keys), path, take)


def _make_gate(config: FleetConfig, ring: KeyRing, is_client_path: Callable[[str], bool]) -> AccessGate:
    access = config.access
    without_keys = OPERATOR if not access.has_keys else ANONYMOUS if access.anonymous else None
    return AccessGate(
        ring,
        anonymous=without_keys,
        is_client_path=is_client_path,
        open_paths=access.open_paths,
        has_admin_port=config.listen.admin_port is not None,
    )


def _make_tenancy(access: AccessConfig) -> Tenancy:
    """What keeps tenants apart; without a configured secret their salts last as long as the process."""
    if access.isolation is Isolation.SHARED or not access.has_keys:
        return Tenancy(None)
    secret = read_salt_secret(access)
    if secret is None:
        _log.warning("salt_secret_drawn effect='tenants miss what engines cached before, and on other routers'")
    return Tenancy(secret or token_bytes(32))


def _make_sending(config: FleetConfig) -> SendingParts:
    limits = PhaseLimits(prefill_s=config.timeouts.prefill_s, handoff_s=config.timeouts.handoff_s)
    return make_sending(RetryLimits(**config.retries.model_dump()), limits)


def _make_settings(config: FleetConfig) -> PlacerSettings:
    return PlacerSettings(
        home_idle_ttl_s=config.sessions.idle_ttl_s,
        max_homes=config.sessions.max_sessions,
        max_decisions=config.limits.decisions,
        shadow_timer=time.perf_counter,
        breaker=config.breaker.to_settings(),
        limits=tuple(
            RequestLimit(workers=frozenset(map(WorkerId, limit.workers)), max_requests=limit.max_requests)
            for limit in config.admission
        ),
        requests_per_rank=config.queue.requests_per_rank,
    )


class _LateUpstream:
    """Stands for the upstream until the event loop runs in which its connections can be made."""

    def __init__(self) -> None:
        self.inner: Upstream | None = None

    def open(
        self, url: str, headers: list[tuple[bytes, bytes]], body: bytes, *, method: str = "POST"
    ) -> Coroutine[Any, Any, Exchange]:
        """See `Upstream.open`."""
        if self.inner is None:
            raise RuntimeError("the router's lifespan has not started")
        return self.inner.open(url, headers, body, method=method)
