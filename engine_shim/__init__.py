"""What runs beside or inside an engine replica."""
