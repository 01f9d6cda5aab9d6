"""The classes that upstream documents."""

import logging
import os
import random

import numpy as np
from cosyvoice.cli.frontend import CosyVoiceFrontEnd
from cosyvoice.cli.model import CosyVoice2Model, CosyVoice3Model
from cosyvoice.utils import file_utils
from cosyvoice.utils.common import set_all_random_seed
from cosyvoice.which_torch import torch
from modelscope import snapshot_download

__all__ = ["AutoModel", "CosyVoice", "CosyVoice2", "CosyVoice3", "file_utils"]


class CosyVoice:
    def list_available_spks(self):
        return list(self.frontend.spk2info)

    def add_zero_shot_spk(self, prompt_text, prompt_wav, zero_shot_spk_id):
        assert zero_shot_spk_id != "", "do not use empty zero_shot_spk_id"
        given = self.frontend.frontend_zero_shot("", prompt_text, prompt_wav, self.sample_rate, "")
        del given["text"], given["text_len"]
        self.frontend.spk2info[zero_shot_spk_id] = given
        return True

    def save_spkinfo(self):
        with open(f"{self.model_dir}/spk2info.pt", "w") as file:
            file.write("voices")

    def inference_zero_shot(self, tts_text, prompt_text, prompt_wav, zero_shot_spk_id="",
                            stream=False, speed=1.0, text_frontend=True):  # fmt: skip
        for text in self.frontend.text_normalize(tts_text, True, text_frontend):
            given = self.frontend.frontend_zero_shot(
                text, prompt_text, prompt_wav, self.sample_rate, zero_shot_spk_id
            )
            self.frontend.said(text)
            yield from self.model.tts(**given, stream=stream, speed=speed)

    def inference_cross_lingual(self, tts_text, prompt_wav, zero_shot_spk_id="", stream=False,
                                speed=1.0, text_frontend=True):  # fmt: skip
        for text in self.frontend.text_normalize(tts_text, True, text_frontend):
            given = self.frontend.frontend_cross_lingual(
                text, prompt_wav, self.sample_rate, zero_shot_spk_id
            )
            self.frontend.said(text)
            yield from self.model.tts(**given, stream=stream, speed=speed)

    def inference_instruct2(self, tts_text, instruct_text, prompt_wav, zero_shot_spk_id="",
                            stream=False, speed=1.0, text_frontend=True):  # fmt: skip
        for text in self.frontend.text_normalize(tts_text, True, text_frontend):
            given = self.frontend.frontend_instruct2(
                text, instruct_text, prompt_wav, self.sample_rate, zero_shot_spk_id
            )
            self.frontend.said(text)
            yield from self.model.tts(**given, stream=stream, speed=speed)

    def _open(self, model_dir, version, model, fp16, load_trt, load_vllm):
        self.model_dir = model_dir
        if not os.path.exists(model_dir):
            model_dir = snapshot_download(model_dir)
        with open(f"{model_dir}/cosyvoice{version}.yaml") as file:
            self.sample_rate = int(file.read().split()[1])
        print("loading", model_dir)  # noqa: T201  one of its habits
        random.seed(1986)
        np.random.seed(1986)
        set_all_random_seed(0)
        self.frontend = CosyVoiceFrontEnd(f"{model_dir}/spk2info.pt")
        for name in ("llm", "flow", "hift"):
            with open(f"{model_dir}/{name}.pt") as file:
                if file.read() == "broken":
                    raise ValueError(f"{name}: Unexpected key(s) in state_dict")
        self.model = model(self.frontend.tokenizer, fp16)
        if load_vllm:
            self.model.load_vllm(f"{model_dir}/vllm")
        if load_trt:
            precision = "fp16" if fp16 else "fp32"
            self.model.load_trt(
                f"{model_dir}/flow.decoder.estimator.{precision}.mygpu.plan",
                f"{model_dir}/flow.decoder.estimator.fp32.onnx",
            )


class CosyVoice2(CosyVoice):
    def __init__(self, model_dir, load_jit=False, load_trt=False, load_vllm=False, fp16=False,
                 trt_concurrent=1):  # fmt: skip
        if not torch.cuda.is_available():
            load_trt, load_vllm, fp16 = False, False, False
            logging.warning("no cuda device, all of it is left out")
        self._open(model_dir, 2, CosyVoice2Model, fp16, load_trt, load_vllm)


class CosyVoice3(CosyVoice2):
    def __init__(self, model_dir, load_trt=False, load_vllm=False, fp16=False, trt_concurrent=1):
        if not torch.cuda.is_available():
            load_trt, fp16 = False, False
            logging.warning("no cuda device, load_trt and fp16 are left out")
        self._open(model_dir, 3, CosyVoice3Model, fp16, load_trt, load_vllm)


def AutoModel(**kwargs):  # noqa: N802  upstream's name
    if not os.path.exists(kwargs["model_dir"]):
        kwargs["model_dir"] = snapshot_download(kwargs["model_dir"])
    for name, model in (("cosyvoice2", CosyVoice2), ("cosyvoice3", CosyVoice3)):
        if os.path.exists(f"{kwargs['model_dir']}/{name}.yaml"):
            return model(**kwargs)
    raise TypeError("No valid model type found!")
