"""How something is to be said, in the sentences that the models were trained with. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from voicemill.options import Option, OptionValue

SYSTEM = "You are a helpful assistant."
END_OF_PROMPT = "<|endofprompt|>"
MARKUP = "markup"

DIALECTS = {
    "cantonese": "广东话",
    "northeastern": "东北话",
    "gansu": "甘肃话",
    "guizhou": "贵州话",
    "henan": "河南话",
    "hubei": "湖北话",
    "hunan": "湖南话",
    "jiangxi": "江西话",
    "minnan": "闽南话",
    "ningxia": "宁夏话",
    "shanxi": "山西话",
    "shaanxi": "陕西话",
    "shandong": "山东话",
    "shanghainese": "上海话",
    "sichuan": "四川话",
    "tianjin": "天津话",
    "yunnan": "云南话",
}
SENTENCES: Mapping[int, Mapping[str, Mapping[str, str]]] = {
    3: {
        "dialect": {name: f"请用{dialect}表达。" for name, dialect in DIALECTS.items()},
        "emotion": {
            "happy": "请非常开心地说一句话。",
            "sad": "请非常伤心地说一句话。",
            "angry": "请非常生气地说一句话。",
        },
        "volume": {
            "loud": "Please say a sentence as loudly as possible.",
            "soft": "Please say a sentence in a very soft voice.",
        },
        "pace": {
            "slow": "请用尽可能慢地语速说一句话。",
            "fast": "请用尽可能快地语速说一句话。",
        },
        "style": {
            "peppa_pig": "我想体验一下小猪佩奇风格，可以吗？",  # noqa: RUF001  trained so
            "robot": "你可以尝试用机器人的方式解答吗？",  # noqa: RUF001
        },
    },
    2: {"dialect": {name: f"用{dialect}说这句话" for name, dialect in DIALECTS.items()}},
}
"""By version and option."""
DESCRIPTIONS = {
    "dialect": "The dialect of Chinese.",
    "emotion": "The feeling.",
    "volume": "How loudly.",
    "pace": "How fast, by the model; `speed` stretches what it gave.",
    "style": "Whom it imitates.",
}


def named_options(version: int) -> tuple[Option, ...]:
    """What an item may set."""
    return (
        *(
            Option(name, "choice", DESCRIPTIONS[name], choices=tuple(sentences))
            for name, sentences in SENTENCES[version].items()
        ),
        Option(MARKUP, "switch", "The text holds tags such as [breath] or [j][ǐ], to be obeyed."),
    )


def instruction(
    version: int, named: Mapping[str, OptionValue], instructions: str | None
) -> str | None:
    """One text of all that an item asks of the delivery; nothing where it asks nothing."""
    asked = [
        sentences[str(named[name])]
        for name, sentences in SENTENCES[version].items()
        if name in named
    ]
    return " ".join([*asked, *([instructions] if instructions else [])]) or None


def prompt_of(version: int, instruction: str) -> str:
    """The prompt text that carries an instruction."""
    system = f"{SYSTEM} " if version == 3 else ""
    return f"{system}{instruction}{END_OF_PROMPT}"


def with_prefix(version: int, text: str) -> str:
    """A text that no instruction goes before: CosyVoice 3 needs the end of a prompt even then."""
    return f"{SYSTEM}{END_OF_PROMPT}{text}" if version == 3 else text
