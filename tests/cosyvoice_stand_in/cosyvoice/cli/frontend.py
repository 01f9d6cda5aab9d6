"""Texts and clips to what the model takes."""

import logging
import os
import re

import numpy as np
from cosyvoice.cli.tokenizer import Tokenizer
from cosyvoice.utils.file_utils import load_wav
from cosyvoice.which_torch import torch


class CosyVoiceFrontEnd:
    def __init__(self, spk2info):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = Tokenizer()
        self.allowed_special = "all"
        self.spk2info = {"left over": {}} if os.path.exists(spk2info) else {}
        try:
            from wetext import Normalizer

            self.zh_tn_model = Normalizer(remove_erhua=False)
            self.en_tn_model = Normalizer()
            self.text_frontend = "wetext"
        except Exception:  # noqa: BLE001  one of its habits
            self.text_frontend = ""

    def _tensor(self, values, dtype=None):
        return torch.tensor(values, dtype=dtype).to(self.device)

    def _extract_text_token(self, text):
        tokens = self.tokenizer.encode(text, allowed_special=self.allowed_special)
        return (
            self._tensor([tokens], torch.int32),
            self._tensor([len(tokens)], torch.int32),
        )

    def _extract_speech_token(self, prompt_wav):
        speech = load_wav(prompt_wav, 16000)
        assert len(speech) / 16000 <= 30, "do not support audio longer than 30s"
        tokens = list(range(int(len(speech) / 16000 * 25)))
        return self._tensor([tokens], torch.int32), self._tensor([len(tokens)], torch.int32)

    def _extract_spk_embedding(self, prompt_wav):
        speech = load_wav(prompt_wav, 16000)
        crossings = np.count_nonzero(np.diff(np.signbit(speech)))
        return self._tensor([[crossings / 2 / (len(speech) / 16000)]], torch.float32)

    def _extract_speech_feat(self, prompt_wav):
        frames = int(len(load_wav(prompt_wav, 24000)) / 24000 * 50)
        feat = torch.zeros(1, frames, 80).to(self.device)
        return feat, self._tensor([frames], torch.int32)

    def text_normalize(self, text, split=True, text_frontend=True):
        if "<|" in text and "|>" in text:
            text_frontend = False
        if text_frontend is False or text == "":
            return [text] if split else text
        text = text.strip()
        if self.text_frontend == "wetext":
            text = self.zh_tn_model.normalize(text)
        text = text.replace(".", "\u3002")
        texts = [one for one in re.findall("[^\u3002]+\u3002?", text) if re.search(r"\w", one)]
        return texts if split else text

    def frontend_zero_shot(self, tts_text, prompt_text, prompt_wav, rate, zero_shot_spk_id):
        text, text_len = self._extract_text_token(tts_text)
        if zero_shot_spk_id == "":
            prompt, prompt_len = self._extract_text_token(prompt_text)
            feat, feat_len = self._extract_speech_feat(prompt_wav)
            token, token_len = self._extract_speech_token(prompt_wav)
            embedding = self._extract_spk_embedding(prompt_wav)
            given = {
                **{"prompt_text": prompt, "prompt_text_len": prompt_len},
                **{"llm_prompt_speech_token": token, "llm_prompt_speech_token_len": token_len},
                **{"flow_prompt_speech_token": token, "flow_prompt_speech_token_len": token_len},
                **{"prompt_speech_feat": feat, "prompt_speech_feat_len": feat_len},
                **{"llm_embedding": embedding, "flow_embedding": embedding},
            }
        else:
            # Whatever prompt text came with the call is forgotten.
            given = {**self.spk2info[zero_shot_spk_id]}
        return {**given, "text": text, "text_len": text_len}

    def frontend_cross_lingual(self, tts_text, prompt_wav, rate, zero_shot_spk_id):
        given = self.frontend_zero_shot(tts_text, "", prompt_wav, rate, zero_shot_spk_id)
        for name in ("prompt_text", "llm_prompt_speech_token"):
            del given[name], given[f"{name}_len"]
        return given

    def frontend_instruct2(self, tts_text, instruct_text, prompt_wav, rate, zero_shot_spk_id):
        given = self.frontend_zero_shot(tts_text, instruct_text, prompt_wav, rate, zero_shot_spk_id)
        del given["llm_prompt_speech_token"], given["llm_prompt_speech_token_len"]
        return given

    def said(self, text):
        logging.info("synthesis text %s", text)
