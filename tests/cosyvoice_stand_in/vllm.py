"""Knows a model only once it is registered."""

from __future__ import annotations

from typing import ClassVar


class ModelRegistry:
    models: ClassVar[dict[str, type]] = {}

    @classmethod
    def register_model(cls, name: str, model: type) -> None:
        cls.models[name] = model


class LLMEngine:
    def __init__(self, model: str) -> None:
        if not ModelRegistry.models:
            raise ValueError("Model architectures ['CosyVoice2ForCausalLM'] are not supported")
        self.model = model
