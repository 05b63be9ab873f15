"""The torch forward behind HTTP: greedy text is the same whether its prefix was cached or not."""

import httpx
import pytest
from engine_serving import LOCAL, TOY, chat_body

from engine_shim.engine.engine import Engine
from engine_shim.engine.forward.toy import build_torch_forward
from engine_shim.engine.publish import EventSockets
from engine_shim.engine.server import EngineService, ServiceSettings, build_app
from engine_shim.engine.spec import EngineSpec, ModelSpec

pytest.importorskip("torch", reason="needs the engine extra")


async def test_greedy_text_over_http_does_not_depend_on_the_cache():
    spec = EngineSpec(pool_pages=64, max_model_len=512, eos_token_ids=(TOY.eos_id,), model=ModelSpec(layers=2))
    settings = ServiceSettings(spec=spec, event_sockets=EventSockets(live=LOCAL, replay=LOCAL))
    service = EngineService(settings, TOY, lambda rank: Engine(spec, build_torch_forward(spec, 0), dp_rank=rank))
    app = build_app(service)
    transport = httpx.ASGITransport(app)
    body = chat_body("a prompt of some length, so that a few pages of it are found again", max_tokens=12)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        cold, warm = [(await client.post("/v1/chat/completions", json=body)).json() for _ in range(2)]
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert cold["choices"] == warm["choices"]
