"""Speak every row of a CSV through a Voicemill server.

exit codes:
  0    every row is spoken
  1    some rows failed; errors.csv says why and can be used as input
  2    the input, the folder or the command line can't be used
  3    no server at the URL, or it is not able to work
  75   another run is at work in the folder
  130  interrupted; the same command goes on from there

examples:
  bulk_csv.py lines.csv --out spoken
  bulk_csv.py lines.csv --out spoken --delimiter ';' --url http://tts.example:8080
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType

if __name__ == "__main__":
    # Until there is something to go on with, Ctrl-C ends it without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Lets it run from a checkout that is not installed; what is installed comes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from voicemill.bulk.errors import BulkError, FolderLockedError
from voicemill.bulk.progress import display_on, say
from voicemill.bulk.speak import speak_csv
from voicemill.client import ClientError
from voicemill.errors import SettingsError
from voicemill.settings import Settings

ALL_SPOKEN, SOME_FAILED, UNUSABLE, NO_SERVER, LOCKED, INTERRUPTED = 0, 1, 2, 3, 75, 130
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t"}


def main(argv: list[str] | None = None) -> int:
    """Run the tool; gives its exit code."""
    prepare_streams()
    arguments = parser().parse_args(argv)
    # A stop by the system is treated like Ctrl-C: what is done so far is written down.
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)
    try:
        settings = Settings.from_env()
        summary = speak_csv(
            arguments.input,
            arguments.out,
            arguments.url or settings.url,
            display_on(sys.stderr, quiet=arguments.quiet),
            api_key=settings.api_key,
            delimiter=arguments.delimiter,
            in_place=arguments.in_place,
        )
    except FolderLockedError as error:
        return complain(error.message, LOCKED)
    except (BulkError, SettingsError) as error:
        return complain(error.message, UNUSABLE)
    except OSError as error:
        return complain(
            f"{arguments.out} can't be written: {error.strerror}. When it can, run this again.",
            UNUSABLE,
        )
    except ClientError as error:
        go_on = " Run the same command again to go on." if error.retryable else ""
        return complain(error.message + go_on, NO_SERVER)
    except KeyboardInterrupt:
        return complain("Interrupted. Run the same command again to go on.", INTERRUPTED)
    say(sys.stdout, *summary.lines())
    return SOME_FAILED if summary.failures else ALL_SPOKEN


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bulk_csv.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", type=Path, help="CSV with a column 'text', in UTF-8; - is stdin")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for audio, results.csv and errors.csv"
    )
    parser.add_argument(
        "--url", help="the server (default: VOICEMILL_URL, else http://127.0.0.1:8080)"
    )
    parser.add_argument(
        "--delimiter", type=delimiter, default=",", help="what separates cells; 'tab' for a tab"
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="link the server's own files instead of fetching them, where its folder is shared",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only the summary")
    return parser


def delimiter(text: str) -> str:
    """A single character that can separate cells."""
    character = NAMED_DELIMITERS.get(text, text)
    if len(character) != 1 or character in '"\r\n\0 ':
        raise argparse.ArgumentTypeError(f"{text!r} is not one character that can separate cells")
    return character


def complain(message: str, code: int) -> int:
    """Say on stderr what is wrong; gives the exit code."""
    say(sys.stderr, message)
    return code


def interrupt(number: int, frame: FrameType | None) -> None:
    """Stop in good order; a second signal stops at once, which loses nothing either."""
    for one in STOP_SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    raise KeyboardInterrupt


def prepare_streams() -> None:
    """Let streams that the caller closed lead nowhere, and the others take any text."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # It gets the number of the closed one, which a file of ours would get otherwise.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    code = main()
    if code == INTERRUPTED:
        # Everything is written; leaving in the usual way would wait for downloads that hang.
        os._exit(code)
    sys.exit(code)
