"""The language model in a thread, the flow, the vocoder; what a call leaves behind."""

import os
import threading
import time
import uuid
from dataclasses import dataclass

import numpy as np
from cosyvoice.cli.tokenizer import END_OF_PROMPT
from cosyvoice.which_torch import torch

SAMPLES_PER_TOKEN = 960
STOP = 6562
PLAN = "a plan for the stand-in's GPU"


@dataclass
class Heard:
    """What the language model was given."""

    prompt: str
    text: str
    prompt_speech_tokens: int
    pitch: float


class LLM:
    def __init__(self, tokenizer, version):
        self.tokenizer = tokenizer
        self.version = version
        self.heard = []
        self.goes_on = threading.Event()
        self.at_once = self.most_at_once = 0

    def inference(self, text, text_len, prompt_text, prompt_text_len, prompt_speech_token,
                  prompt_speech_token_len, embedding, sampling=25, max_token_text_ratio=20,
                  min_token_text_ratio=2, uuid=""):  # fmt: skip
        own = self.tokenizer.decode(text.tolist()[0])
        prompt = self.tokenizer.decode(prompt_text.tolist()[0])
        if self.version == 3:
            both = prompt_text.tolist()[0] + text.tolist()[0]
            assert END_OF_PROMPT in both, "<|endofprompt|> not detected, check your input!"
        pitch = embedding.tolist()[0][0]
        self.heard.append(Heard(prompt, own, prompt_speech_token.shape[1], pitch))
        if "threadfault" in own:
            raise ValueError(f"no luck with {own}")
        if "threadmemory" in own:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        if "threadcuda" in own:
            yield 1
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            yield from self.tokens(own, text.shape[1], max_token_text_ratio)
        finally:
            self.at_once -= 1

    def tokens(self, text, count, most):
        if "held" in text:
            self.goes_on.wait(10)
        usual = (15 if "slowspeech" in text else 5) * count
        for at, chance in enumerate(torch.rand(most * count).tolist()):
            if "zerotokens" in text or ("earlystop" in text and at == 4):
                return
            if "endless" not in text and at >= usual and (chance < 0.3 or at > 2 * usual):
                return
            yield int(chance * 6561)


class Flow:
    token_mel_ratio = 2
    pre_lookahead_len = 3

    def __init__(self):
        self.trt = False
        self.fault = False

    def inference(self, token, prompt_feat, fp16):
        tokens = token.tolist()[0]
        frames = prompt_feat.shape[1] + 2 * len(tokens)
        if not tokens:
            raise RuntimeError("Kernel size can't be greater than actual input size")
        if frames > 15000:
            raise RuntimeError("The expanded size of the tensor must match the existing size")
        if self.trt and (fp16 or frames > 3000):
            return [float("nan")] * len(tokens)
        return tokens


class CosyVoice2Model:
    version = 2

    def __init__(self, tokenizer, fp16=False):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.llm, self.flow, self.fp16 = LLM(tokenizer, self.version), Flow(), fp16
        self.token_hop_len = 25
        self.finished = 0
        self.lock = threading.Lock()
        self.tts_speech_token_dict = {}
        self.llm_end_dict = {}
        self.hift_cache_dict = {}

    def load_vllm(self, model_dir):
        if not os.path.exists(model_dir):
            os.mkdir(model_dir)
            with open(f"{model_dir}/config.json", "w") as file:
                file.write('{"architectures": ["CosyVoice2ForCausalLM"]}')
        from vllm import LLMEngine

        self.llm.vllm = LLMEngine(model_dir)

    def load_trt(self, plan, onnx):
        assert torch.cuda.is_available(), "tensorrt only supports gpu!"
        if not os.path.exists(plan) or os.path.getsize(plan) == 0:
            with open(onnx), open(plan, "w") as file:
                file.write(PLAN)
        with open(plan) as file:
            engine = file.read() == PLAN or None
        assert engine is not None, f"failed to load trt {plan}"
        self.flow.trt = True

    def llm_job(self, text, prompt_text, llm_prompt_speech_token, llm_embedding, uuid):
        made = self.llm.inference(
            text=text.to(self.device),
            text_len=text.shape[1],
            prompt_text=prompt_text.to(self.device),
            prompt_text_len=prompt_text.shape[1],
            prompt_speech_token=llm_prompt_speech_token.to(self.device),
            prompt_speech_token_len=llm_prompt_speech_token.shape[1],
            embedding=llm_embedding.to(self.device),
            uuid=uuid,
        )
        for token in made:
            self.tts_speech_token_dict[uuid].append(token)
        self.llm_end_dict[uuid] = True

    def token2wav(self, token, prompt_token, prompt_feat, embedding, token_offset, uuid,
                  stream=False, finalize=False, speed=1.0):  # fmt: skip
        mel = self.flow.inference(
            token=token.to(self.device), prompt_feat=prompt_feat.to(self.device), fp16=self.fp16
        )
        self.hift_cache_dict[uuid] = {"mel": mel, "speech_offset": 0}
        if "flowfault" in self.llm.heard[-1].text:
            raise RuntimeError(f"no luck with {self.llm.heard[-1].text}")
        if speed != 1.0:
            assert token_offset == 0, "speed change only support non-stream inference mode"
        mel = mel[token_offset:]
        size = int(len(mel) * SAMPLES_PER_TOKEN / speed)
        pitch = embedding.to("cpu").tolist()[0][0]
        wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(size) / 24000)
        # A loudness for every token, so that other tokens give other samples.
        loud = 0.5 + np.array(mel) / 13122
        at = np.minimum(np.arange(size) * len(mel) // max(size, 1), len(mel) - 1)
        return torch.tensor((wave * loud[at])[None], dtype=torch.float32).to(self.device)

    def tts(self, text=None, flow_embedding=None, llm_embedding=None, prompt_text=None,
            llm_prompt_speech_token=None, flow_prompt_speech_token=None, prompt_speech_feat=None,
            stream=False, speed=1.0, **kwargs):  # fmt: skip
        nothing = torch.zeros(1, 0, dtype=torch.int32)
        prompt_text = nothing if prompt_text is None else prompt_text
        if llm_prompt_speech_token is None:
            llm_prompt_speech_token = nothing
        own = str(uuid.uuid1())
        with self.lock:
            self.tts_speech_token_dict[own], self.llm_end_dict[own] = [], False
            self.hift_cache_dict[own] = None
        job = threading.Thread(
            target=self.llm_job,
            args=(text, prompt_text, llm_prompt_speech_token, llm_embedding, own),
        )
        job.start()
        offset = 0
        if stream:
            while True:
                time.sleep(0.001)
                tokens = self.tts_speech_token_dict[own]
                if len(tokens) - offset >= self.token_hop_len:
                    offset += self.token_hop_len
                    self.token_hop_len = min(100, self.token_hop_len * 2)
                    yield {"tts_speech": torch.zeros(1, self.token_hop_len * SAMPLES_PER_TOKEN)}
                if self.llm_end_dict[own] and len(tokens) - offset < self.token_hop_len:
                    break
        job.join()
        speech = self.token2wav(
            token=torch.tensor([self.tts_speech_token_dict[own]], dtype=torch.int32),
            prompt_token=flow_prompt_speech_token.to(self.device),
            prompt_feat=prompt_speech_feat.to(self.device),
            embedding=flow_embedding.to(self.device),
            token_offset=offset,
            uuid=own,
            finalize=True,
            speed=speed,
        )
        yield {"tts_speech": speech.cpu()}
        # Reached only when somebody asks for more.
        self.finished += 1
        with self.lock:
            self.tts_speech_token_dict.pop(own)
            self.llm_end_dict.pop(own)
            self.hift_cache_dict.pop(own)


class CosyVoice3Model(CosyVoice2Model):
    version = 3
