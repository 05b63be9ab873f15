"""Stands beside a real SGLang or vLLM engine. Nothing of it is built yet."""
