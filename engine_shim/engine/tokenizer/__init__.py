"""Prompt in, token ids out, and back: takes messages from the server, gives ids to admission and text to clients."""

from engine_shim.engine.tokenizer.codec import TOY_FOLDER, Tokenizer
from engine_shim.engine.tokenizer.output_text import OutputText, TextPiece
from engine_shim.engine.tokenizer.template import ChatTemplate, TemplateRefused

__all__ = ["TOY_FOLDER", "ChatTemplate", "OutputText", "TemplateRefused", "TextPiece", "Tokenizer"]
