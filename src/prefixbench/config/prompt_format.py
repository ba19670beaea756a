"""What a prompt is sent as."""

from __future__ import annotations

from enum import StrEnum


class PromptFormat(StrEnum):
    """What is sent: one text, token ids, or chat messages."""

    TEXT = "text"
    TOKEN_IDS = "token_ids"
    CHAT = "chat"
