"""Stands beside a real SGLang or vLLM engine."""
