"""The model as vLLM runs it."""


class CosyVoice2ForCausalLM:
    pass
