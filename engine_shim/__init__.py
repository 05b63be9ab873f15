"""What runs beside or inside an engine replica: the sidecar of a foreign engine, and a small engine of our own."""
