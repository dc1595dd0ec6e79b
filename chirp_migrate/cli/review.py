"""``chirp-migrate review PATH``: show each hunk, and read the user's decision from a terminal or a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote

import click

from chirp_migrate.cli.applying import accepted_part_of_plan, apply_plan, explain_interruption, show_result
from chirp_migrate.cli.options import (
    CommandWithOptionGroups,
    ignore_pins_option,
    option,
    output_options,
    plan_file_option,
)
from chirp_migrate.cli.planning import PlanRequest, make_plan, planning_options, read_plan_file
from chirp_migrate.console.json_document import read_document, to_json_bytes
from chirp_migrate.console.output import Output
from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import pluralize
from chirp_migrate.errors import UsageProblem, WriteRefused
from chirp_migrate.exit_codes import ExitCode, help_epilog
from chirp_migrate.plans.plan import FindingStatus, Plan, Safety
from chirp_migrate.plans.plan_document import PlanDocument
from chirp_migrate.report.wording import NOTES
from chirp_migrate.review.plan_file import (
    PlanFile,
    keep_earlier_decisions,
    plan_document,
    read_plan,
)
from chirp_migrate.review.walk import InvalidEdit, Review, ReviewItem, edits_from_editor, text_for_editor
from chirp_migrate.rules import all_rules
from chirp_migrate.source.files import read_file, replace_file

DEFAULT_FILE = "chirp-migrate-plan.json"

_HELP = """\
y  accept this hunk                   n  refuse it
a  accept it and the rest of the file d  refuse it and the rest of the file
r  accept the rest of this rule       R  refuse the rest of this rule
e  edit it in your editor             x  explain the rule
b  back to the previous hunk          q  quit; the decisions are kept
"""
_SHOWN_LINES = 40


@click.command(
    cls=CommandWithOptionGroups,
    epilog=help_epilog(
        {
            ExitCode.OK: "all hunks are decided, and the accepted hunks are applied if you chose so",
            ExitCode.WORK_REMAINS: "quit before everything was decided; the plan file keeps the decisions",
            ExitCode.USAGE: "PATH cannot be migrated, or an option, setting or plan is wrong",
            ExitCode.REFUSED: "refused, nothing changed (for the same reasons as apply)",
            ExitCode.UNDONE: "applying failed midway, and all changes were undone",
        },
        "chirp-migrate review project/",
        "chirp-migrate review project/ --plan plan.json",
        "printf 'y\\ny\\nd\\n' | chirp-migrate review project/",
    ),
)
@planning_options
@plan_file_option(
    "Plan file to review, which also stores the decisions. A missing file is created.", default=DEFAULT_FILE
)
@option("--allow-dirty", is_flag=True, help="Allow uncommitted changes in the work tree.")
@ignore_pins_option
@output_options(
    "how many hunks were accepted and refused",
    "Print the questions without diffs.",
    "Print whole diffs, and explain each rule.",
)
def review(request: PlanRequest, plan_file: Path, allow_dirty: bool, ignore_pins: bool, output: Output) -> None:
    """Accept, refuse or edit the changes to the project at PATH hunk by hunk.

    `review` saves every answer to the plan file at once. You can quit and continue later, or send the file to another
    person.
    At the end, `review` offers to apply the accepted hunks. `apply --plan` also applies these hunks.
    """
    found = _open_plan(request, plan_file, output)
    session = Review(found.plan, found.choices)
    screen = output.screen()
    if not session.items:
        is_done = all(finding.status is FindingStatus.FINE for finding in found.plan.findings)
        known = "already migrated, or no rule applies here"
        screen.line(f"Nothing to review: {known if is_done else 'no rule rewrites the findings'}.")
        sys.exit(ExitCode.OK)
    interrupted = _decide(session, found.plan, plan_file, screen)
    accepted = sum(choice.accepted for choice in session.choices.values())
    left = session.undecided()
    refused = len(session.choices) - accepted
    output.write({"schema": 1, "accepted": accepted, "refused": refused, "undecided": left})
    screen.line()
    screen.line(f"{accepted} accepted, {refused} refused, {left} not decided.")
    plan = f"{request.quoted_path} --plan {quote(str(plan_file))}"
    if left:
        screen.line(f"Saved in {plan_file}. To continue: chirp-migrate review {plan}")
        sys.exit(ExitCode.INTERRUPTED if interrupted else ExitCode.WORK_REMAINS)
    selected, edited = accepted_part_of_plan(replace(found, choices=session.choices, reviewed=True), request, plan_file)
    if not selected.files:
        screen.line("Nothing is accepted, so there is nothing to apply.")
        sys.exit(ExitCode.OK)
    try:
        is_applied = _asks_to_apply(screen)
    except KeyboardInterrupt:
        is_applied, interrupted = False, True
        click.echo("\nchirp-migrate: interrupted", err=True)
    if not is_applied:
        screen.line(f"Saved in {plan_file}. To apply the plan: chirp-migrate apply {plan}")
        sys.exit(ExitCode.INTERRUPTED if interrupted else ExitCode.OK)
    with explain_interruption(request):
        result = apply_plan(
            request, selected, output, edited_files=edited, allow_dirty=allow_dirty, ignore_pins=ignore_pins
        )
    # -q and -v affect only the output of the review, and not the output about the applied changes.
    show_result(request, selected, result, replace(output, quiet=False, verbose=False).screen())
    if refused:
        screen.line(f"To suppress the refused hunks in `check`: chirp-migrate check --add-ignore {request.quoted_path}")
    sys.exit(ExitCode.OK)


def _decide(session: Review, plan: Plan, plan_file: Path, screen: Screen) -> bool:
    """Ask about each hunk, and save each answer to the plan file. Return whether the user pressed Ctrl-C."""
    begun = len(session.choices)
    total = pluralize(len(session.items), "hunk")
    screen.line(f"{total} to decide" + (f", {begun} of them decided earlier." if begun else ".") + " Type ? for help.")
    if not plan_file.exists():  # before the first question, so that an error loses no decisions
        _save_decisions(plan_file, plan, session)
    try:
        _review_items(session, screen, lambda: _save_decisions(plan_file, plan, session))
    except KeyboardInterrupt:  # Ctrl-C has the same effect as `q`, but another exit code
        click.echo("\nchirp-migrate: interrupted", err=True)
        return True
    return False


def _asks_to_apply(screen: Screen) -> bool:
    """Ask until the answer is yes or no. The end of the input means no.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    answer = "?"
    while answer.lower() not in ("y", "yes", "n", "no"):
        answer = _read_answer(screen, "Apply the accepted hunks now? [y,n] ") or "n"
    return answer.lower() in ("y", "yes")


def _read_answer(screen: Screen, question: str) -> str | None:
    """Print a question, and return the user's answer without surrounding white space; None at the end of the input."""
    screen.line(question, "bold", end="")
    line = sys.stdin.readline()
    if not line or not sys.stdin.isatty():
        screen.line(line.strip())
    return line.strip() if line else None


def _open_plan(request: PlanRequest, plan_file: Path, output: Output) -> PlanFile:
    """Return the plan in ``plan_file`` if the sources are unchanged; make a new plan if the sources have changed.

    If a hunk of the new plan is equal to a hunk of the old plan, the new plan keeps the decision on the hunk.
    """
    if request.path.suffix == ".json":
        raise UsageProblem(
            f"{request.path} is a plan, not a project: run `chirp-migrate review PROJECT --plan {request.quoted_path}`."
        )
    old: PlanDocument | None = None
    if plan_file.exists():
        try:
            data = read_file(plan_file)
        except OSError as error:
            raise UsageProblem(f"{plan_file} cannot be read ({error.strerror}): choose another --plan.") from None
        with contextlib.suppress(ValueError):  # a file that is not a plan has no decisions
            old = read_document(data, PlanDocument)
        rewritten = [file.path for file in old.files if file.sha256_before is not None] if old is not None else []
        if rewritten and not any((request.root / path).exists() for path in rewritten):
            raise WriteRefused(
                f"{plan_file} seems to be the plan of another project: none of its files is in {request.root}. "
                "Nothing was changed. Choose another --plan."
            )
        if request.is_bare:
            try:
                return read_plan_file(plan_file, request)
            except WriteRefused as stale:
                click.echo(f"chirp-migrate: {str(stale).partition(';')[0]}: planning again.", err=True)
        if old is not None and request.is_bare:
            request = request.with_options(old.options)
    plan = make_plan(request, output)
    content = plan_document(plan)
    if old is not None:
        content = keep_earlier_decisions(old, content)
    return read_plan(to_json_bytes(content), str(plan_file), plan.root)


def _review_items(session: Review, screen: Screen, save: Callable[[], None]) -> None:
    """Show hunks and read decisions until all hunks are decided or the user quits."""
    shown: ReviewItem | None = None
    while (item := session.current) is not None:
        if item is not shown:
            _show_item(session, item, screen)
            shown = item
        answer = _read_answer(screen, f"[{session.number}/{len(session.items)}] accept? [y,n,a,d,r,R,e,x,b,q,?] ")
        if answer is None or answer == "q":
            return
        if answer == "b":
            if not session.go_back():
                screen.line("This is the first hunk.")
        elif answer == "e":
            _edit_item(session, item, screen)
        elif answer == "x":
            _explain_rules(item, screen)
            for line in item.diff():
                screen.diff_line(line)
        elif answer in ("y", "n"):
            session.decide(answer == "y")
        elif answer in _RESTS:
            decide, accepted = _RESTS[answer]
            hunks = pluralize(decide(session, accepted), "hunk")
            screen.line(f"{hunks} {'accepted' if accepted else 'refused'}.")
        else:
            for line in _HELP.splitlines():
                screen.line(line)
        save()


#: Answers that decide on several hunks at once. Each answer maps to the method that decides, and to whether the method
#: accepts the hunks.
_RESTS: dict[str, tuple[Callable[[Review, bool], int], bool]] = {
    "a": (Review.decide_rest_of_file, True),
    "d": (Review.decide_rest_of_file, False),
    "r": (Review.decide_rest_of_kind, True),
    "R": (Review.decide_rest_of_kind, False),
}


def _show_item(session: Review, item: ReviewItem, screen: Screen) -> None:
    """Print a hunk: its file, its findings, its diff, and the other hunks that must get the same decision."""
    choice = session.choices.get(item.id)
    now = "" if choice is None else "  (accepted so far)" if choice.accepted else "  (refused so far)"
    screen.line()
    screen.line(f"{item.file.path}{now}", "bold")
    for one in item.findings:
        safety = "" if one.safety is Safety.SAFE else f" ({one.safety.value})"
        screen.item(f"{one.place:>5}  {one.rule}", f"{one.message_with_gain}{safety}", indent=0, style="cyan")
    if item.hunk is None:
        screen.line(f"       {NOTES.get(item.file.note, item.file.note)}: accept or refuse the whole file")
    lines = [] if screen.quiet else list(item.diff(None if choice is None else choice.edits))
    shown = len(lines) if screen.verbose else _SHOWN_LINES
    for line in lines[:shown]:
        screen.diff_line(line)
    if len(lines) > shown:
        screen.line(f"… {len(lines) - shown} more lines (type x to show all lines)")
    others = [one for one in session.decided_with(item) if one is not item]
    if others:
        places = ", ".join(
            f"{one.file.path}:{one.findings[0].place}" if one.findings else one.file.path for one in others
        )
        screen.line(f"decided together with: {places}", "dim")
    for line in item.hunk.import_lines if item.hunk is not None else ():
        screen.line(f"adds: {line}", "dim")
    if screen.verbose:
        _explain_rules(item, screen)


def _explain_rules(item: ReviewItem, screen: Screen) -> None:
    rules = {rule.code: rule for rule in all_rules()}
    for code in dict.fromkeys(one.rule for one in item.findings):
        rule = rules[code]
        screen.item(rule.code, f"{rule.name} ({rule.safety.value})", indent=0, style="cyan")
        screen.text(rule.reason, 2)


def _edit_item(session: Review, item: ReviewItem, screen: Screen) -> None:
    choice = session.choices.get(item.id)
    suffix = Path(item.file.path).suffix.replace(".ipynb", ".py")
    try:
        text = click.edit(text_for_editor(item, choice), extension=suffix)
        if text is None:
            screen.line("Not edited.")
            return
        session.edit(edits_from_editor(item, choice, text))
    except InvalidEdit as error:
        screen.line(f"The edit was not accepted: {error!s}.")
    except click.ClickException as error:
        screen.line(f"The editor cannot be started: {error.format_message()}. Set EDITOR to your editor.")


def _save_decisions(plan_file: Path, plan: Plan, session: Review) -> None:
    """Write the plan and all decisions to the plan file, atomically."""
    content = to_json_bytes(plan_document(plan, session.choices))
    try:
        replace_file(plan_file, content, plan_file.with_name(f".{plan_file.name}.tmp"))
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageProblem(f"{plan_file} cannot be written ({why}): choose another --plan.") from error
