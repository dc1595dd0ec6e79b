"""The page as a document: complete, escaped, allowed to do nothing but run its own script."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from report_tools import HOSTILE, LOADERS, applied, backend, doctor_json, with_doctor, with_verdict
from support import run, sentence

from chirp_migrate.report.change_rows import ChangeRow, ChangeSection
from chirp_migrate.report.code_tokens import tokens_by_line
from chirp_migrate.report.page.changes import PageContents
from chirp_migrate.report.page.code import escape_invisible, section_html
from chirp_migrate.report.page.render import render_page
from chirp_migrate.report.reading import read_report_contents

_VOID = {"meta", "br", "wbr", "input"}


class Document(HTMLParser):
    """A page taken apart: its elements with attributes, ids, and the text of each code line."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def page_of(root: Path) -> str:
    return render_page(PageContents.of(read_report_contents(root)))


def test_the_page_is_whole_and_may_load_nothing(tmp_path: Path) -> None:
    page = page_of(with_verdict(applied(tmp_path / "mine")))
    document = Document(page)
    (policy,) = [one["content"] for one in document.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    style, script = re.search(r"<style>(.*?)</style>", page, re.S), re.search(r"<script>(.*?)</script>", page, re.S)
    assert style is not None and script is not None
    for kind, text in (("style-src", style[1]), ("script-src", script[1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    loading = {"src", "srcset", "style", "action", "data", "poster", "background", "xlink:href"}
    for tag, attributes in document.elements:
        assert not loading & set(attributes) and not any(name.startswith("on") for name in attributes), (
            tag,
            attributes,
        )
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in style[1] and "@import" not in style[1]


def test_every_link_leads_somewhere_and_every_name_is_there_once(tmp_path: Path) -> None:
    document = Document(page_of(with_verdict(applied(tmp_path / "mine"))))
    assert len(set(document.ids)) == len(document.ids)
    assert {one["href"][1:] for one in document.all("a")} <= set(document.ids)
    named = [one[key] for _, one in document.elements for key in ("aria-labelledby",) if key in one]
    assert named and set(named) <= set(document.ids)
    levels = [int(tag[1]) for tag, _ in document.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels)), "no level is skipped"
    assert len(document.all("main")) == len(document.all("header")) == len(document.all("footer")) == 1


def test_the_verdict_and_its_figures_come_first(tmp_path: Path) -> None:
    text = " ".join("".join(Document(page_of(with_verdict(applied(tmp_path / "mine")))).text).split())
    order = ["Verdict: Faster", "Training time saved", "50.0 %", "interval 40.0 to 60.0 %", "Waiting for batches"]
    order += [
        "3 loaders found",
        "DataLoader is used as a value in 1 place",
        "DataLoader(dataset, batch_size=4",
        "A hand-written loader call",
    ]
    at = 0
    for said in order:
        at = text.index(said, at)
    for said in ("R-004", "4 made, 3 count, 1 discarded", "some CPU", "meets the threshold", "validates on what it"):
        assert said in text


def test_code_that_tries_to_be_html_is_only_text(tmp_path: Path) -> None:
    name = 'evil" onload="x.py'
    root = applied(tmp_path / "<b>mine", **{"a.py": HOSTILE, name: HOSTILE})
    hostile = {"reason": "</h2><script>1</script>\u202e", "notes": ["<img src=x onerror=alert(1)>"]}
    page = page_of(with_verdict(root, **hostile))
    document = Document(page)
    assert len(document.all("script")) == len(document.all("style")) == 1
    assert not document.all("img") and "<!--" not in page
    text = "".join(document.text)
    assert "</script><script>document.title = 'broken'</script><!-- <img src=x" in text, "it is shown as it is written"
    shown = page.encode("utf-8").decode("utf-8")
    for hidden in "\u202e\u202c\u2067\u200b\u00ad\u3164\u2028\U000e0041":
        assert hidden not in shown and f"\u27e8U+{ord(hidden):04X}\u27e9" in text
    assert 'title="RIGHT-TO-LEFT OVERRIDE"' in page


def test_what_doctor_found_is_a_section_and_only_text(tmp_path: Path) -> None:
    problem = {**doctor_json()["problems"][0], "message": "<script>alert(1)</script>.", "path": 'a" onload="x.py'}
    root = applied(tmp_path / "mine")
    assert "doctor" not in Document(page_of(root)).ids
    document = Document(page_of(with_doctor(root, problems=[problem])))
    text = " ".join("".join(document.text).split())
    assert len(document.all("script")) == 1 and "doctor" in document.ids
    assert "<script>alert(1)</script>. Seen: 8 of 8 samples" in text and 'a" onload="x.py:7' in text
    assert "2026-03-01 12:00 UTC. Doctor: 1 problem in 2 entry points (1 failed)." in text
    assert "train.two failed: ValueError: no such bird." in text


def test_problems_that_verify_saw_are_a_section_where_doctor_was_not_run(tmp_path: Path) -> None:
    problems = [{"check": "order", "message": "The order is <b>the same</b>.", "entry_points": ["train.one"]}]
    document = Document(page_of(with_verdict(applied(tmp_path / "mine"), problems=problems)))
    text = " ".join("".join(document.text).split())
    assert "chirp-migrate verify found these problems." in text and "order The order is <b>the same</b>." in text


@pytest.mark.parametrize(
    "character", [chr(code_) for code_ in (0, 7, 0x7F, 0x85, 0xA0, 0x202E, 0xD800, 0xFFFE, 0x10FFFF)]
)
def test_whatever_cannot_be_seen_is_spelled_out(character: str) -> None:
    shown = f"a\u27e8U+{ord(character):04X}\u27e9b"
    assert escape_invisible(f"a{character}b") == shown
    line = section_html(ChangeSection((ChangeRow("+", None, 1, f"a{character}b"),)))
    assert shown[1:-1] in line and character not in line


def test_names_of_files_that_are_no_text_can_be_told() -> None:
    assert escape_invisible("caf\udce9.py").encode("utf-8") == "caf\u27e8U+DCE9\u27e9.py".encode()


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("def f(x): return None", {"def": "k", "f": "d", "return": "k", "None": "k"}),
        ("x = 'a # b'  # c", {"a # b": "s", "# c": "c"}),
        ("@wraps(g)", {"@wraps": "r"}),
        ("n = 0x1F + 1_000 + 2.5e-3", {"0x1F": "n", "1_000": "n", "2.5e-3": "n"}),
        ("self.x = print and 1", {"self": "b", "print": "b", "and": "k"}),
        ("class Größe: pass", {"class": "k", "Größe": "d", "pass": "k"}),
    ],
)
def test_words_of_python_lines(line: str, kinds: dict[str, str]) -> None:
    found = tokens_by_line(line)[0]
    assert "".join(text for _, text in found) == line
    for text, kind in kinds.items():
        assert (kind, text) in found


def test_lines_know_the_string_that_they_are_in_and_end_where_python_ends_them() -> None:
    text = "a = '''one\r\ntwo # no comment\r'''\nb\fc = 1\n\n"
    found = tokens_by_line(text)
    assert ["".join(word for _, word in line) for line in found] == [
        "a = '''one",
        "two # no comment",
        "'''",
        "b\fc = 1",
        "",
        "",
    ]
    assert found[1] == (("s", "two # no comment"),)


def test_all_lines_are_on_the_page_as_they_are(tmp_path: Path) -> None:
    """What is copied from the page is the code: no numbers, no signs, all blanks."""
    page = page_of(applied(tmp_path / "mine"))
    text = "".join(Document(page).text)
    for line in LOADERS.splitlines()[7:12]:
        assert line + "\n" in text


def test_the_command_writes_one_file_and_says_so(tmp_path: Path) -> None:
    root, out = applied(tmp_path / "mine"), tmp_path / "report.html"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    done = run("report", root, "-o", out)
    assert done.exit_code == 0 and f"{out}: 3 changes in 1 file" in done.output
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before, "the backend is only read"
    assert run("report", root, "-o", "-").stdout == out.read_text(encoding="utf-8"), "the same again is the same page"


def test_a_page_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = run("report", backend(tmp_path / "mine"), "-o", tmp_path / "no" / "x.html")
    assert done.exit_code == 2 and "its folder does not exist" in sentence(done)
