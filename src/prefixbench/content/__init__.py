"""Tokens and text: tokenizers, corpora, and prompts that keep their planned length exactly."""
