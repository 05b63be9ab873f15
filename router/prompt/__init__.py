"""A request's prompt as the engine will see it: rendered with the model's template, tokenized, hashed.

Takes decoded request fields, gives token ids equal to a full tokenization and their block chains. Never guesses:
what cannot be rendered the engine's way comes back as a reason, and the request then earns no cache credit.
"""

from router.prompt.catalogue import ModelPrompts, PreparedPrompt, PromptCatalogue
from router.prompt.prompter import Prompter, PromptInput, Unrenderable

__all__ = ["ModelPrompts", "PreparedPrompt", "PromptCatalogue", "PromptInput", "Prompter", "Unrenderable"]
