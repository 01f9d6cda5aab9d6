"""Build what ``trt`` and ``vllm`` read, once, before any worker starts.

Needs the GPU that it is for. What is built appears in the model folder whole or not at all, so
that workers which start meanwhile, or a build that is ended, find nothing half done.
``python -m worker.engines.cosy.build --checkout DIR --model-dir DIR --trt``
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from voicemill.errors import VoicemillError
from worker.engines.cosy.options import ANEW, BUILD, CosyVoiceOptions
from worker.engines.cosy.upstream import open_model

DRAFT = ".build-"
"""How the name of a folder begins in which a build is going on, or was ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 built or there already, 1 not built, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {BUILD}", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--checkout", required=True)
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--fp16", action="store_true", help="half precision (CosyVoice 2 only)")
    parser.add_argument("--trt", action="store_true", help="the TensorRT plan of the estimator")
    parser.add_argument("--vllm", action="store_true", help="the export that vLLM reads")
    parser.add_argument(ANEW, action="store_true", help="also what is there, of another GPU maybe")
    asked = parser.parse_args(arguments)
    if not (asked.trt or asked.vllm):
        parser.error("give --trt, --vllm or both")
    try:
        plain = CosyVoiceOptions.read({"checkout": asked.checkout, "model_dir": asked.model_dir})
        wanted = replace(plain, fp16=asked.fp16, trt=asked.trt, vllm=asked.vllm)
        wanted.refuse_pairs()
        built = build(wanted, anew=asked.anew)
    except (VoicemillError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"Built: {', '.join(built) or 'nothing, all was there'}.\n")
    return 0


def build(options: CosyVoiceOptions, *, anew: bool) -> list[str]:
    """Have upstream build what is missing, or all ``anew``; gives the names of what was built."""
    home = options.model_dir
    wanted = [*options.artefacts()] if anew else options.unbuilt()
    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=home) as folder:
        for path in home.iterdir():
            if path.name not in wanted and not path.name.startswith(DRAFT):
                (Path(folder) / path.name).symlink_to(path)
        open_model(replace(options, model_dir=Path(folder)))
        for name in wanted:
            put(Path(folder) / name, home / name)
    return wanted


def put(built: Path, place: Path) -> None:
    """Have an artefact where it belongs, also over one that is no good."""
    if place.is_dir():
        shutil.rmtree(place)
    built.rename(place)


if __name__ == "__main__":
    sys.exit(main())
