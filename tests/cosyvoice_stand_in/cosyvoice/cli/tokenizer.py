"""A word, a digit or a character of East Asia is a token; control tokens are found anywhere."""

import re

END_OF_PROMPT = 151646


class Tokenizer:
    def __init__(self):
        self.special_tokens = {
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "additional_special_tokens": [
                *("<|im_start|>", "<|endofprompt|>", "[breath]", "<strong>", "</strong>"),
                *("[laughter]", "[AA0]", "[j]", "[\u01d0]"),
            ],
        }
        self.special = [
            "<|endoftext|>",
            *self.special_tokens["additional_special_tokens"],
        ]
        alternatives = [*map(re.escape, self.special), r" ?[^\W\d_\u2e80-\uffff]+", r"."]
        self.pattern = re.compile("|".join(alternatives), re.DOTALL)
        self.ids = {"<|endofprompt|>": END_OF_PROMPT}
        self.texts = {END_OF_PROMPT: "<|endofprompt|>"}

    def encode(self, text, allowed_special="all"):
        tokens = []
        for piece in self.pattern.findall(text):
            token = self.ids.setdefault(piece, len(self.ids) + 1)
            self.texts[token] = piece
            tokens.append(token)
        return tokens

    def decode(self, tokens):
        return "".join(self.texts[token] for token in tokens)
