"""Takes a trace and the URL of an OpenAI-compatible endpoint, sends the one to the other closed-loop, and measures."""
