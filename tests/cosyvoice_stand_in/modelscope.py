"""Takes any path that is not there for the name of a model."""

downloads: list[str] = []


def snapshot_download(name: str) -> str:
    downloads.append(name)
    return name
