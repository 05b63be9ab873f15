"""Beside a real engine: mirrors its cache events and serves them again, with replay and snapshots, on one endpoint."""
