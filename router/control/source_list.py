"""The sources of workers that a configuration names."""

from router.config.discovery import DiscoveryConfig
from router.control.file_source import FileSource
from router.control.kubernetes import KubernetesSource
from router.control.sources import Source


def make_sources(config: DiscoveryConfig) -> tuple[Source, ...]:
    """Every source but the configuration itself and the workers that register."""
    files = () if config.file is None else (FileSource(config.file),)
    return (*files, *map(KubernetesSource, config.kubernetes))
