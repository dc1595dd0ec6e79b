"""The script that samples texts prints the requested number of each kind, and the same for the same seed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from support import ROOT

from qa.sample_texts import docstrings, messages, names, sections

MODULE = ast.parse("""\
"First sentence of the module.  Second sentence of it, on\\ntwo lines.\\n\\n    python code is left out here\\n"

def load(path, *, workers):
    raise ValueError(f"{path} has no samples: " + "add some to it")

def _hidden(): ...

class Loader: ...
""")


def sample(seed: int) -> str:
    """Return what the script prints."""
    command = (sys.executable, ROOT / "qa" / "sample_texts.py", "--seed", str(seed), "--count", "5")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_script_prints_the_requested_number_of_each_kind_and_repeats_with_the_seed() -> None:
    printed = sample(3)
    assert printed == sample(3) != sample(4)
    kinds = re.split(r"^(?=\w)", printed.strip(), flags=re.MULTILINE)
    assert [kind.split()[0] for kind in kinds if kind] == ["Docstrings", "Messages", "Pages", "Names"]
    assert [re.findall(r"^ *(\d+)\. \S", kind, re.MULTILINE) for kind in kinds if kind] == [list("12345")] * 4


def test_docstrings_are_split_into_sentences_with_their_heading_and_without_code() -> None:
    assert list(docstrings(Path("pkg/data.py"), MODULE)) == [
        "First sentence of the module.\n     (in data.py)",
        "Second sentence of it, on two lines.\n     (in data.py, after: First sentence of the module.)",
    ]


def test_sentences_of_a_page_have_the_heading_of_their_section(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "Some words before the heading.\n\n## Speed\n\nSome words below the heading.\n", encoding="utf-8"
    )
    assert list(sections(tmp_path / "page.md")) == [
        "Some words before the heading.\n     (in page.md)",
        "Some words below the heading.\n     (in page.md: Speed)",
    ]


def test_messages_are_whole_texts_with_placeholders() -> None:
    assert [text for _, text in messages(MODULE)] == ["{path} has no samples: add some to it"]


def test_names_are_public_and_have_parameters() -> None:
    assert list(names(MODULE)) == ["load(path, workers)", "class Loader"]
