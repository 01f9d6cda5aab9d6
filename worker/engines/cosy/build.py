"""Build what ``trt`` and ``vllm`` read, once, before any worker starts.

Needs the GPU that it is for. What is built appears in the model folder whole or not at all, so
that workers which start meanwhile, or a build that is ended, find nothing half done.
``python -m worker.engines.cosy.build --checkout DIR --model-dir DIR --trt``
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from voicemill.errors import VoicemillError
from worker.engines.cosy.options import CosyVoiceOptions
from worker.engines.cosy.upstream import open_model


def main(arguments: Sequence[str] | None = None) -> int:
    """0 built or there already, 1 not built, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.engines.cosy.build", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--checkout", required=True)
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--fp16", action="store_true", help="half precision (CosyVoice 2 only)")
    parser.add_argument("--trt", action="store_true", help="the TensorRT plan of the estimator")
    parser.add_argument("--vllm", action="store_true", help="the export that vLLM reads")
    asked = parser.parse_args(arguments)
    if not (asked.trt or asked.vllm):
        parser.error("give --trt, --vllm or both")
    try:
        plain = CosyVoiceOptions.read({"checkout": asked.checkout, "model_dir": asked.model_dir})
        wanted = replace(plain, fp16=asked.fp16, trt=asked.trt, vllm=asked.vllm)
        wanted.refuse_pairs()
        built = build(wanted)
    except (VoicemillError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"Built: {', '.join(built) or 'nothing, all was there'}.\n")
    return 0


def build(options: CosyVoiceOptions) -> list[str]:
    """Have upstream build what is missing; gives the names of what was built."""
    home = options.model_dir
    missing = [name for name in options.artefacts() if not (home / name).exists()]
    if not missing:
        return []
    with tempfile.TemporaryDirectory(prefix=".build-", dir=home) as folder:
        for path in home.iterdir():
            if path != Path(folder):
                (Path(folder) / path.name).symlink_to(path)
        open_model(replace(options, model_dir=Path(folder)))
        for name in missing:
            os.rename(Path(folder) / name, home / name)
    return missing


if __name__ == "__main__":
    sys.exit(main())
