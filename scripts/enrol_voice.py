"""Enrol voices that are cloned from clips, list them, and delete them.

A clip is 1 to 30 seconds of one person speaking (5 to 10 are best), at 16 kHz
or more, without music or noise; the text is every word that is said in it.
Clone nobody's voice who has not agreed to it: --consent says who did, and when.
To change a clip or its text, delete the voice and enrol it again.

exit codes:
  0  done
  1  the server refused: the message says why
  2  the command line can't be used, or a file can't be read
  3  the server can't be reached

examples:
  enrol_voice.py enrol ann ann.wav --text "Good morning from the harbour." \\
      --language en --consent "Ann Li, by mail on 2026-03-01"
  enrol_voice.py list
  enrol_voice.py delete ann
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

# Lets it run from a checkout that is not installed; what is installed comes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from voicemill.answers import Voice
from voicemill.client import Client, ClientError, ServerProblemError, ServerUnreachableError
from voicemill.errors import SettingsError
from voicemill.settings import Settings

DONE, REFUSED, UNUSABLE, NO_SERVER = 0, 1, 2, 3
PATIENCE_SECONDS = 20.0


def main(argv: list[str] | None = None) -> int:
    """Run the tool; gives its exit code."""
    arguments = parser().parse_args(argv)
    try:
        settings = Settings.from_env()
        url, api_key = arguments.url or settings.url, arguments.api_key or settings.api_key
        with Client(url, api_key=api_key, patience_seconds=PATIENCE_SECONDS) as client:
            run: Callable[[Client, argparse.Namespace], int] = arguments.run
            return run(client, arguments)
    except SettingsError as error:
        return complain(error.message, UNUSABLE)
    except ServerProblemError as problem:
        faults = [fault.detail for fault in problem.faults]
        return complain("\n".join(faults or [problem.message]), REFUSED)
    except ServerUnreachableError as error:
        return complain(f"{error.message} Give its address with --url.", NO_SERVER)
    except ClientError as error:
        return complain(error.message, REFUSED)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="enrol_voice.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", help="the server (default: VOICEMILL_URL)")
    parser.add_argument("--api-key", help="where it asks for one (default: VOICEMILL_API_KEY)")
    commands = parser.add_subparsers(required=True, metavar="enrol|list|delete")
    made = commands.add_parser("enrol", help="a voice that items may name from then on")
    made.add_argument("name", help="1 to 64 of A-Z a-z 0-9 . _ -")
    made.add_argument("clip", type=Path, help="a wav, flac, mp3 or ogg file")
    made.add_argument("--text", required=True, help="what is said in it, word for word")
    made.add_argument("--language", required=True, help="of what is said: en, zh, de-AT")
    made.add_argument("--consent", required=True, help="who agreed to be cloned, and when")
    made.add_argument("--description", default="", help="for those who look for a voice")
    made.set_defaults(run=enrol)
    commands.add_parser("list", help="every voice there is").set_defaults(run=show)
    gone = commands.add_parser("delete", help="a voice and its clip, for good")
    gone.add_argument("name")
    gone.set_defaults(run=delete)
    return parser


def enrol(client: Client, arguments: argparse.Namespace) -> int:
    """Enrol a voice and say what became of it."""
    try:
        voice = client.enrol_voice(
            arguments.clip,
            arguments.text,
            language=arguments.language,
            name=arguments.name,
            consent=arguments.consent,
            description=arguments.description,
        )
    except OSError as error:
        return complain(f"{arguments.clip} can't be read: {error.strerror}.", UNUSABLE)
    enrolled = voice["enrolled"]
    seconds = enrolled["duration_seconds"] if enrolled else None
    print(f"The voice {voice['id']} is ready: {seconds or 0.0:.1f} s at {rate_of(voice)} Hz.")
    if enrolled and enrolled["advice"]:
        print(enrolled["advice"])
    return DONE


def show(client: Client, arguments: argparse.Namespace) -> int:
    """Print the voices as a table."""
    rows = [("voice", "model", "languages", "status", "description")]
    rows += [row_of(voice) for voice in client.voices()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return DONE


def row_of(voice: Voice) -> tuple[str, str, str, str, str]:
    """A voice as a line."""
    enrolled = voice["enrolled"]
    shared = " (shared)" if enrolled and enrolled["shared"] else ""
    status = enrolled["status"] + shared if enrolled else "built in"
    model = voice["model"] or "any that clones"
    return voice["id"], model, " ".join(voice["languages"]), status, voice["description"]


def rate_of(voice: Voice) -> int:
    """The sample rate (Hz) of a voice's clip."""
    return (voice["enrolled"] and voice["enrolled"]["sample_rate"]) or 0


def delete(client: Client, arguments: argparse.Namespace) -> int:
    """Delete a voice."""
    client.delete_voice(arguments.name)
    print(f"The voice {arguments.name} is deleted. Items that still wait for it fail.")
    return DONE


def complain(message: str, code: int) -> int:
    """Say on stderr what is wrong; gives the exit code."""
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
