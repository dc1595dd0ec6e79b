"""The page as people use it, in a real Chromium without a window: skipped where there is none."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_tools import HOSTILE, LOADERS, applied, with_verdict

from chirp_migrate.report.page.changes import PageContents
from chirp_migrate.report.page.render import render_page
from chirp_migrate.report.reading import read_report_contents

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, which drives the browser")
if CHROMIUM is None:
    pytest.skip("needs Chromium (apt-get install chromium)", allow_module_level=True)

pytestmark = pytest.mark.slow
PHONE = {"width": 375, "height": 720}
DESK = {"width": 1400, "height": 900}
SHOWN = ".hunk:not([hidden])"

#: Relative luminance and contrast as WCAG 2 defines them, for every text that is seen.
CONTRAST = """() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = parts(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const low = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest("svg")) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
  }
  return [...low];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> PageContents:
    folder = tmp_path_factory.mktemp("report")
    long_line = f"\nlong = DataLoader([{', '.join(map(str, range(400)))}], batch_size={'9' * 300})\n"
    files = {"train.py": LOADERS, "deep/hostile.py": HOSTILE, "deep/long.py": HOSTILE.split("\n")[0] + long_line}
    root = applied(folder / "mine", **files)
    found = PageContents.of(read_report_contents(with_verdict(root)))
    run = found.runs[0]
    added = replace(run.files[0], path="added.py", action="create", note="scaffold", id="added.py")
    added = replace(added, hunks=(replace(run.files[0].hunks[-1], id="added.py:file", kind="file"),))
    return replace(found, runs=(replace(run, files=(*run.files, added)),))


@pytest.fixture(scope="module")
def address(contents: PageContents, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(contents), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; in the end nothing may have been asked for but the page, and no error been seen."""
    contexts, trouble, asked = [], [], []

    def visit(address: str, viewport: dict[str, int] = DESK, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert trouble == []
    assert {one.partition(":")[0] for one in asked} == {"file"} and len({one.partition("#")[0] for one in asked}) == 1


def until(page: Any, expression: str) -> None:
    """Wait for an expression to be true; the page's policy does not let the driver wait inside it."""
    deadline = time.monotonic() + 20
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


def place(page: Any) -> str:
    """The change that the address names, as the page has it: the driver learns of it later."""
    found: str = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    return found


def shown(page: Any) -> list[str]:
    """Ids of the changes that are not filtered out."""
    found: list[str] = page.eval_on_selector_all(SHOWN, "found => found.map((one) => one.id)")
    return found


def status(page: Any) -> list[int]:
    """The numbers of the elements that the page shows."""
    return [int(number) for number in re.findall(r"\d+", page.text_content("[role=status]"))]


def test_filters_leave_what_was_asked_for_and_say_how_much(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    whole = shown(page)
    assert status(page) == [len(whole), 2]
    page.select_option("#by-file", "train.py")
    assert shown(page) == ["train.py:1", "train.py:2", "train.py:follows"]
    assert page.eval_on_selector_all(
        ".file:not([hidden]) > summary h3", "all => all.map((one) => one.textContent)"
    ) == ["train.py"]
    page.select_option("#by-rule", "CHP001")
    assert shown(page) == ["train.py:1", "train.py:2"]
    assert status(page) == [2, len(whole), 2, 2]
    page.fill("#by-text", "NUM_WORKERS=0")
    until(page, f"document.querySelectorAll('{SHOWN}').length === 1")
    assert shown(page) == ["train.py:2"], "code is searched, in any case"
    page.fill("#by-text", "nowhere at all")
    until(page, f"document.querySelectorAll('{SHOWN}').length === 0")
    assert status(page)[0] == 0
    page.keyboard.press("Escape")
    page.keyboard.press("j")  # there is nothing to go to
    page.click("text=Clear")
    until(page, f"document.querySelectorAll('{SHOWN}').length === {len(whole)}")
    page.select_option("#by-safety", "advice")
    assert shown(page) == [] and status(page)[-1] == 2


def test_keys_go_from_change_to_change(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    ids = shown(page)
    for number in (0, 1, 2):
        page.keyboard.press("j")
        assert place(page) == ids[number]
        assert page.evaluate("document.activeElement.closest('.hunk').id") == ids[number]
        assert page.locator(".hunk.here").count() == 1
        assert page.evaluate(
            "(id) => document.getElementById(id).getBoundingClientRect().top < innerHeight", ids[number]
        )
    page.keyboard.press("k")
    assert place(page) == ids[1]
    is_open = "(id) => document.getElementById(id).open"
    page.keyboard.press("o")
    assert page.evaluate(is_open, ids[1]) is False
    page.keyboard.press("Enter")
    assert page.evaluate(is_open, ids[1]) is True
    page.keyboard.press("c")
    assert page.locator(".hunk[open]").count() == 0
    page.keyboard.press("e")
    assert page.locator(".hunk[open]").count() == len(ids)
    page.keyboard.press("/")
    page.keyboard.type("jk?")  # goes into the field
    assert page.evaluate("document.activeElement.id") == "by-text" and page.input_value("#by-text") == "jk?"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_both_views_show_the_same_lines(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    assert page.get_attribute("html", "data-view") == "split", "there is room for it"
    columns = """() => [...document.querySelectorAll('[id="train.py:1"] .code :is(del, ins)')]
        .map((line) => [line.tagName, Math.round(line.getBoundingClientRect().left)])"""
    page.evaluate("document.getElementById('train.py:1').scrollIntoView()")
    lefts = dict(page.evaluate(columns))
    assert lefts["INS"] > lefts["DEL"] + 200
    page.wait_for_selector('[id="train.py:1"] .twin')
    page.keyboard.press("u")
    assert len({left for _, left in page.evaluate(columns)}) == 1
    assert page.locator(".twin:visible").count() == 0
    # What is copied is the code, with the blanks that take no room on the page.
    copied = page.evaluate(
        """() => { getSelection().selectAllChildren(document.querySelector('[id="train.py:1"] .code'));
                   return getSelection().toString(); }"""
    )
    assert "\n    train = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers)\n" in copied
    assert "\n        dataset, batch_size=4, shuffle=True, num_workers=workers\n" in copied


def test_a_link_to_a_change_opens_what_it_is_in(visit: Callable[..., Any], address: str) -> None:
    page = visit(f"{address}#added.py:file")
    for _ in range(2):
        until(page, "document.activeElement.closest('.hunk')?.id === 'added.py:file'")
        assert page.evaluate(
            "document.getElementById('added.py').open && document.getElementById('added.py:file').open"
        )
        until(page, "Math.abs(document.getElementById('added.py:file').getBoundingClientRect().top - 200) < 200")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
        page.reload()
    page.select_option("#by-file", "train.py")
    page.evaluate("location.hash = '#deep/long.py:1'")
    until(page, "!document.getElementById('deep/long.py:1').hidden")
    assert page.input_value("#by-file") == "", "a link goes before a filter"
    page.click(".contents a >> text=train.py")
    assert page.evaluate("document.getElementById('train.py').getBoundingClientRect().top < innerHeight")


def test_a_file_that_was_added_is_closed_until_it_is_wanted(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    assert page.evaluate("document.getElementById('added.py').open") is False
    page.fill("#by-text", "added.py")
    until(page, "document.getElementById('added.py').open")


@pytest.mark.parametrize("viewport", [PHONE, {"width": 320, "height": 600}, {"width": 800, "height": 600}, DESK])
def test_nothing_is_wider_than_the_screen(visit: Callable[..., Any], address: str, viewport: dict[str, int]) -> None:
    page = visit(address, viewport)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for view in ("split", "unified"):
        page.evaluate("(view) => { document.documentElement.dataset.view = view; }", view)
        # A hunk is laid out when it is scrolled to.
        page.evaluate("for (const one of document.querySelectorAll('.hunk')) one.scrollIntoView()")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(visit: Callable[..., Any], address: str, scheme: str) -> None:
    page = visit(address, color_scheme=scheme)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate(CONTRAST) == []
    ground = "getComputedStyle(document.body).backgroundColor"
    own = page.evaluate(ground)
    page.click("text=Dark" if scheme == "light" else "text=Light")
    assert page.evaluate(ground) != own and page.evaluate(CONTRAST) == []
    page.click("text=Auto")
    assert page.evaluate(ground) == own


def test_without_a_script_everything_is_there_to_read(
    visit: Callable[..., Any], address: str, contents: PageContents
) -> None:
    page = visit(address, java_script_enabled=False)
    assert page.locator(".hunk[open]").count() == sum(len(file.hunks) for run in contents.runs for file in run.files)
    assert page.locator(".hunk:visible").count() == page.locator(".hunk").count()
    assert page.locator("details.file.added[open]").count() == 1
    assert page.locator(".scripted:visible").count() == 0, "what does nothing is not shown"


def test_on_paper_all_is_open_and_nothing_is_to_be_clicked(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    page.click("text=Dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST) == []
    assert page.locator("details:not([open])").count() == 0
    assert page.locator(".filters:visible, .contents:visible, .themes:visible").count() == 0
    assert page.locator(".hunk:visible").count() == page.locator(".hunk").count()
    assert page.pdf().startswith(b"%PDF")


def test_it_can_be_walked_by_landmarks_and_tabs(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    for role in ("banner", "main", "contentinfo", "search", "status"):
        assert page.get_by_role(role).count() == 1, role
    assert page.get_by_role("navigation").count() == 2
    for kind in ("button", "link", "combobox", "searchbox"):
        for one in page.get_by_role(kind).all():
            name = one.get_attribute("aria-label") or one.text_content() or one.locator("xpath=..").text_content()
            assert name.strip(), f"a {kind} has no name"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tops = []
    for _ in range(12):
        page.keyboard.press("Tab")
        tops.append(page.evaluate("document.activeElement.getBoundingClientRect().top + scrollY"))
    assert tops == sorted(tops), "the focus goes down the page"


def test_hostile_text_stays_text(visit: Callable[..., Any], address: str) -> None:
    page = visit(address)
    assert page.title() == "mine: migration report"
    assert page.locator("img").count() == 0
    code = page.locator("[id='deep/hostile.py:1'] .code, [id='deep/hostile.py:follows'] .code").all_text_contents()
    assert any("</script><script>document.title = 'broken'</script>" in text for text in code)
    assert page.locator(".odd[title='RIGHT-TO-LEFT OVERRIDE']").count() >= 1


def test_even_a_script_that_got_into_the_page_would_not_run(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'ran = 1'}))")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=https://example.org/x.png>')")
    until(page, "typeof ran === 'undefined' && document.images[0].complete")
    assert len(said) == 2 and all("Content Security Policy" in one for one in said)
    page.close()


def test_two_thousand_changes_are_there_at_once(
    visit: Callable[..., Any], contents: PageContents, tmp_path: Path
) -> None:
    run = contents.runs[0]
    file = next(one for one in run.files if one.path == "train.py")
    files = tuple(
        replace(
            file,
            path=f"part_{part}.py",
            id=f"part_{part}.py",
            hunks=tuple(replace(file.hunks[n % 2], number=n, id=f"part_{part}.py:{n}") for n in range(1, 101)),
        )
        for part in range(20)
    )
    path = tmp_path / "large.html"
    path.write_text(render_page(replace(contents, runs=(replace(run, files=files),))), encoding="utf-8")
    page = visit(path.as_uri())
    # How long the first paint takes is measured by benchmarks/report_page.py; what is off the screen is not laid out.
    laid_out = (
        "[...document.querySelectorAll('.hunk')].filter(one => getComputedStyle(one).contentVisibility !== 'auto')"
    )
    assert page.evaluate(f"{laid_out}.length") == 0
    assert status(page)[0] == 2000
    page.evaluate("location.hash = '#part_17.py:60'")
    until(page, "document.activeElement.closest('.hunk')?.id === 'part_17.py:60'")
    page.keyboard.press("j")
    assert place(page) == "part_17.py:61"
    page.fill("#by-text", "part_3.py")
    until(page, f"document.querySelectorAll('{SHOWN}').length === 100")
    assert status(page)[:2] == [100, 2000]
