"""A story as one HTML file: nothing is fetched, nothing but its own script can run, and it can be read without it."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from chirp_migrate.report.page.account import ledger_section, reported_section, rules_section
from chirp_migrate.report.page.changes import LARGEST_INDENT, changes_section
from chirp_migrate.report.page.html import escape, tag
from chirp_migrate.report.page.verdict import figures_section, verdict_section
from chirp_migrate.report.story import Story

__all__ = ["render_page"]


def render_page(story: Story) -> str:
    """The whole document.

    Only the script and the style in it are allowed to do anything (a content security policy with their hashes), and
    they may load nothing: a source that got past the escaping could still not run.
    """
    style, script = _style(), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = f"{story.name}: {'migration plan' if story.is_plan else 'migration report'}"
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style}</style><script>{script}</script>"
    )
    body = [
        '<a class="skip" href="#changes">Skip to the changes</a>',
        _header(story, title),
        "<main>",
        verdict_section(story),
        figures_section(story),
        ledger_section(story),
        changes_section(story),
        reported_section(story),
        rules_section(story),
        "</main>",
        _footer(story),
        _help(),
    ]
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _asset(name: str) -> str:
    return files("chirp_migrate.report.page").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    """The style sheet, with the dark colours in both of their places and a class for every width of an indent."""
    indents = "".join(f".code .w{width} {{ --in: min({width}ch, 30%); }}\n" for width in range(1, LARGEST_INDENT + 1))
    return _asset("report.css").replace("/* dark */", _asset("dark.css").strip()).replace("/* indents */\n", indents)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _header(story: Story, title: str) -> str:
    tools = dict.fromkeys(run.tool for run in story.runs if run.tool)
    when = dict.fromkeys(run.created for run in story.runs if run.created)
    said = " · ".join([*tools, *(f"applied {one.replace('T', ' ').replace('Z', ' UTC')}" for one in when)])
    themes = "".join(
        tag("button", escape(name), type="button", data_theme=name.lower(), aria_pressed="false")
        for name in ("Auto", "Light", "Dark")
    )
    links = (
        ("#verdict", "Verdict"),
        *((("#figures", "Figures"),) if story.verdict is not None else ()),
        ("#ledger", "Account"),
        ("#changes", "Changes"),
        ("#reported", "Left alone"),
        ("#rules", "Rules"),
    )
    menu = "".join(f'<li><a href="{href}">{name}</a></li>' for href, name in links)
    return (
        f'<header class="top"><div><h1>{escape(title)}</h1><p class="quiet">{escape(said)}</p></div>'
        f'<div class="themes scripted" role="group" aria-label="Colours">{themes}</div>'
        f'<nav aria-label="Sections"><ul>{menu}</ul></nav></header>'
    )


def _footer(story: Story) -> str:
    left_out = [one for run in story.runs for one in run.left_out]
    shown = "".join(f"<li>{escape(one.path)}: {escape(one.reason)}</li>" for one in left_out)
    listed = (
        f"<details><summary>Not looked at ({len(left_out)})</summary><ul>{shown}</ul></details>" if left_out else ""
    )
    return (
        f"<footer>{listed}<p>This file is complete: it loads and sends nothing. To undo what was applied, to the "
        "byte: <code>chirp-migrate rollback PATH</code>. What cannot be seen in a source is spelled out, such as "
        "⟨U+202E⟩.</p></footer>"
    )


def _help() -> str:
    keys = (
        ("j / k", "next / previous change"),
        ("o", "open or close the change"),
        ("u", "side by side / unified"),
        ("/", "search"),
        ("c / e", "close / open all"),
        ("?", "this help"),
        ("Esc", "leave the search, close this help"),
    )
    rows = "".join(f"<dt><kbd>{escape(key)}</kbd></dt><dd>{escape(what)}</dd>" for key, what in keys)
    return (
        '<dialog id="help" aria-labelledby="help-title"><h2 id="help-title">Keys</h2>'
        f'<dl>{rows}</dl><button type="button" data-close>Close</button></dialog>'
    )
