"""The HTTP face: takes requests from clients, gives ids to the ranks' engines and their tokens back to clients."""

from engine_shim.engine.server.app import build_app
from engine_shim.engine.server.limits import ServingLimits
from engine_shim.engine.server.service import EngineService, ServiceSettings

__all__ = ["EngineService", "ServiceSettings", "ServingLimits", "build_app"]
