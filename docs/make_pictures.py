"""Write docs/images/*.svg, which are pictures of terminal output.

    python docs/make_pictures.py

* `diff.svg`: the output of `chirp-migrate apply --diff backend/` about one call of the fixture backend.
* `verdict.svg`: the report of `chirp-migrate verify` that `benchmarks/verify_fixture.py --readme` put into README.md.

All lines are real output. An ellipsis marks omitted lines.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from chirp_migrate.cli import main as command_line
from chirp_migrate.console.screen import Screen, diff_style

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"

COLUMNS = 104
_CELL, _LINE, _MARGIN, _SIZE = 7.8, 18.0, 14.0, 13
_GAP = "\x1b[2m…\x1b[0m"
_PAINTED = re.compile(r"\x1b\[([\d;]*)m")
_STYLE = f"""\
text {{ font: {_SIZE}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #1f2328 }}
.c1 {{ font-weight: bold }} .c2 {{ fill: #59636e }} .c31 {{ fill: #b3151d }} .c32 {{ fill: #116329 }}
.c33 {{ fill: #7d4e00 }} .c36 {{ fill: #1b5e86 }} .ground {{ fill: #f6f8fa }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .c2 {{ fill: #9198a1 }} .c31 {{ fill: #ff8983 }} .c32 {{ fill: #56d364 }}
.c33 {{ fill: #e3b341 }} .c36 {{ fill: #79c0ff }} .ground {{ fill: #151b23 }}
}}"""


def diff_picture() -> str:
    """Return the output of ``apply --diff`` about one rewritten call of the fixture backend."""
    name = "utils/training_engine.py"
    with tempfile.TemporaryDirectory() as folder:
        backend = Path(folder) / "backend"
        shutil.copytree(ROOT / "fixtures" / "backend", backend, ignore=shutil.ignore_patterns("__pycache__"))
        said = _bytes_said("apply", "--diff", "--color", "never", str(backend)).decode("utf-8")
    reasons = [line for line in said.splitlines() if re.match(rf"# {name}:\d+: CHP001 ", line)]
    of_file = said.partition(f"\n--- a/{name}\n")[2].partition("\ndiff --git ")[0]
    hunk = next(one for one in re.split(r"\n(?=@@ )", of_file) if "create_training_loader" in one).splitlines()
    call = hunk[: hunk.index("         )") + 1]
    shown = [reasons[0], _GAP, f"--- a/{name}", f"+++ b/{name}", _GAP, *call, _GAP]
    lines = [line if line == _GAP else _painted(line, diff_style(line)) for line in shown]
    return terminal_svg("A diff by chirp-migrate", [_typed("chirp-migrate apply --diff backend/"), *lines])


def verdict_picture() -> str:
    """Return the first lines of the report of ``verify`` that README.md shows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    recorded = readme.partition("<!-- verify: begin -->")[2].partition("<!-- verify: end -->")[0]
    command = re.search(r"`(chirp-migrate verify [^`]*)`", recorded)
    report = re.sub(r"^    ", "", recorded.partition(":\n\n")[2], flags=re.MULTILINE).strip("\n")
    if command is None or not report.startswith("Verdict: "):
        raise ValueError("README.md holds no report: run `python benchmarks/verify_fixture.py --readme` first.")
    verdict = re.compile(r"^Verdict: [\w, -]+")
    style = "bold green" if "Verdict: faster." in report else "bold yellow"
    lines = [verdict.sub(lambda found: _painted(found.group(), style), line) for line in report.splitlines()]
    return terminal_svg("A verdict by chirp-migrate", [_typed(command[1]), "", *lines])


def _painted(text: str, style: str) -> str:
    return Screen(io.StringIO(), colour=True).styled(text, style)


def terminal_svg(title: str, lines: Iterable[str]) -> str:
    """Return an SVG picture of terminal output with colour codes, for light and dark backgrounds."""
    folded = [piece for line in lines for piece in _folded(line)]
    width = 2 * _MARGIN + COLUMNS * _CELL
    height = 2 * _MARGIN + len(folded) * _LINE
    rows = [
        f'<text x="{_MARGIN:g}" y="{_MARGIN + number * _LINE + 13:g}">{"".join(spans)}</text>'
        for number, line in enumerate(folded)
        if (spans := list(_spans(line)))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f'<rect class="ground" width="{width:g}" height="{height:g}" rx="8"/>',
            *rows,
            "</svg>\n",
        ]
    )


def _typed(command: str) -> str:
    return f"\x1b[2m$\x1b[0m \x1b[1m{command}\x1b[0m"


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line that have one colour, each as a colour code and its text."""
    parts = _PAINTED.split(line)
    yield "", parts[0]
    for code, text in zip(parts[1::2], parts[2::2], strict=True):
        yield ("" if code == "0" else code), text


def _folded(line: str) -> Iterator[str]:
    """Break a line in the same way as a terminal of ``COLUMNS`` columns."""
    row, used = "", 0
    for code, text in _pieces(line):
        while text:
            if used == COLUMNS:
                yield row
                row, used = "", 0
            taken, text = text[: COLUMNS - used], text[COLUMNS - used :]
            row += f"\x1b[{code}m{taken}\x1b[0m" if code else taken
            used += len(taken)
    yield row


def _spans(line: str) -> Iterator[str]:
    column = 0
    for code, text in _pieces(line):
        if text.strip():
            # Each character has its own position and width, so that columns are aligned in any font.
            place = f'x="{_MARGIN + column * _CELL:g}" textLength="{len(text) * _CELL:g}"'
            names = " ".join(f"c{one}" for one in code.split(";") if one)
            style = f' class="{names}"' if names else ""
            yield f'<tspan {place} xml:space="preserve"{style}>{escape(text, quote=False)}</tspan>'
        column += len(text)


def _bytes_said(*arguments: str) -> bytes:
    """Run a command, and return its standard output."""
    said = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(said, encoding="utf-8", write_through=True)):
        with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            command_line.main(args=list(arguments), standalone_mode=False)
        return said.getvalue()


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, picture in (("diff.svg", diff_picture()), ("verdict.svg", verdict_picture())):
        (IMAGES / name).write_text(picture, encoding="utf-8")
        print(f"written: {IMAGES / name}")
