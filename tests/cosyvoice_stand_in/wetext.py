"""A normaliser that fetches its data whenever one is made."""

downloads: list[str] = []


class Normalizer:
    def __init__(self, **options: object) -> None:
        downloads.append("pengzhendong/wetext")

    def normalize(self, text: str) -> str:
        return text
