"""Define the output of a command: text for users, and a JSON document for programs.

A command checks at its start whether the JSON file can be written, so that a long run does not lose its result.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from chirp_migrate.console.json_document import to_json_bytes
from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.console.progress_line import LiveProgressLine
from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import escape_invisible
from chirp_migrate.errors import UsageProblem

STANDARD_OUTPUT = Path("-")
#: Largest number of columns for prose. Longer lines are hard to read.
_READABLE_WIDTH = 100


@dataclass(frozen=True)
class Output:
    """Settings for the output of a command: how much to print, and where to write the JSON document.

    Attributes:
        json_file: the path after ``--json``; ``-`` stands for standard output. None if no JSON document is written.
        quiet: whether to print only the most important lines (``-q``).
        verbose: whether to print all details (``-v``).
        color: when to print colours, one of ``auto``, ``always`` or ``never``. With ``auto``, only terminals get
            colours.

    Raises:
        UsageProblem: ``json_file`` cannot be written.
    """

    json_file: Path | None = None
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"

    def __post_init__(self) -> None:
        check_writable(self.json_file)

    @property
    def json_is_printed(self) -> bool:
        """Return whether the JSON document is printed to standard output. Other text must then go to standard error."""
        return self.json_file == STANDARD_OUTPUT

    def screen(self, *, prose: bool = True, err: bool | None = None) -> Screen:
        """Return a screen that prints text to standard output or standard error.

        If ``color`` is ``auto``, the screen prints colours only on a terminal, and only without the environment
        variable NO_COLOR.

        Args:
            prose: whether to limit lines to 100 columns on a wide terminal, because longer lines are hard to read.
            err: whether to print to standard error. With None, the screen prints to standard error only if the JSON
                document is printed to standard output.
        """
        stream = sys.stderr if (self.json_is_printed if err is None else err) else sys.stdout
        automatic = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns
        return Screen(
            stream,
            width=min(width, _READABLE_WIDTH) if prose else width,
            colour=self.color == "always" or (self.color == "auto" and automatic),
            quiet=self.quiet,
            verbose=self.verbose,
        )

    def write(self, document: object) -> None:
        """Write the JSON document to the file of ``--json``, if the user passed this option.

        Raises:
            UsageProblem: the file of ``--json`` cannot be written.
        """
        if self.json_file is not None:
            write_bytes(self.json_file, to_json_bytes(document))

    def print_line(self, text: str) -> None:
        """Print one line to standard error. If ``quiet`` is set, print nothing."""
        if not self.quiet:
            print(f"  {escape_invisible(text)}", file=sys.stderr, flush=True)

    def progress(self, doing: str) -> AbstractContextManager[Progress]:
        """Return a context manager: ``with … as`` binds a progress callback that prints to standard error.

        Operations call the callback with strings and with :class:`ProgressStep` objects. On a terminal, a progress line
        appears after two seconds and shows the current :class:`ProgressStep`. The callback prints strings above this
        line. If standard error is not a terminal, the callback prints each string on a line, and ignores
        :class:`ProgressStep` objects. If ``quiet`` is set, the callback prints nothing.
        """
        if not self.quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            return LiveProgressLine(sys.stderr, doing)
        return nullcontext(lambda what: None if isinstance(what, ProgressStep) else self.print_line(what))


def check_writable(target: Path | None) -> None:
    """Check before a long run that the folder of ``target`` exists, so that the run does not lose its result.

    Raises:
        UsageProblem: the folder of ``target`` does not exist, or ``target`` is a folder.
    """
    if target is None or target == STANDARD_OUTPUT:
        return
    if target.is_dir():
        raise UsageProblem(f"{target} is a folder: pass the name of a file.")
    if not target.absolute().parent.is_dir():
        raise UsageProblem(f"{target} cannot be written, because its folder does not exist: choose another file.")


def write_bytes(target: Path, content: bytes) -> None:
    """Write ``content`` to the file ``target``, or to standard output if ``target`` is ``-``.

    Raises:
        UsageProblem: the file ``target`` cannot be written.
    """
    if target == STANDARD_OUTPUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    try:
        target.write_bytes(content)
    except OSError as error:
        raise UsageProblem(f"{target} cannot be written ({error.strerror}): choose another file.") from error
