"""Print a report on a terminal: the verdict, the metrics, the loaders, and every change with its rule."""

from __future__ import annotations

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.report import problem_summary, show_problem
from chirp_migrate.report.contents import ReportContents
from chirp_migrate.report.terminal.changes import show_run
from chirp_migrate.report.terminal.verdict_lines import show_verdict_and_reason, show_verify_details
from chirp_migrate.report.verdict_rows import measured_metrics

#: Dictionary: term of a report → meaning of the term, for new readers.
_OF_CHANGES = {
    "sample, batch": (
        "A sample is one item of the training data with its label. A batch is the samples of one training step."
    ),
    "loader": "An object that yields batches: `torch.utils.data.DataLoader`, or its replacement.",
    "worker": "A separate process that loads batches for the training.",
    "factory": "`OptimalDataLoaderFactory`, which builds a loader that suits the data and the machine.",
    "runtime": "`chirpid_patch`: the package that migrated code imports.",
    "rule": "A check for one habit of training code. `chirp-migrate explain CODE` describes the rule with an example.",
    "safe": "A change after which training sees the same samples, in the same order, with the same values, or random "
    "augmentation with the same distribution.",
    "behaviour-changing": "A change after which training learns something else; applied only with --unsafe.",
    "advice": "A finding of a rule that never rewrites code.",
    "hunk": "The smallest change that can be accepted or refused alone, with `chirp-migrate review`.",
    "suppressed": "Not rewritten, because a comment in the code or a setting excludes it.",
    "not rewritten": "Found and not migrated, for the reason shown.",
    "already migrated": "A loader that the factory builds already.",
}
_OF_VERDICTS = {
    "before, after": "The training as it was before the migration, and as it is now.",
    "entry point": "A function of the project that trains.",
    "round": "One training of each version, in two new processes that take turns.",
    "saved": "Share of the training time before the migration that the training no longer needs; negative if it takes "
    "longer.",
    "after : before": "The time after as a share of the time before: `####......` is 40 %, and `>` is more than 100 %.",
    "interval": "Times vary from round to round. Of 100 such ranges, at least 95 contain the true value.",
    "zero-cost loading": "The same training fed from one batch that is in memory already: no loader can be faster.",
    "verdict of an entry point": "The result of this entry point alone. `meets the threshold`: it saves at least the "
    "threshold. `not shown`: its saving is uncertain. `model-bound`: even zero-cost loading saves less. `slower`: it "
    "takes longer.",
    "adjusted p": "A p-value, adjusted for the number of tests. A value near 0 means that the augmentation differs.",
    "R-000, R-004": "Numbers of requirements. Each requirement defines a target for a measured value.",
}


def show_report(contents: ReportContents, screen: Screen) -> None:
    """Print a report. ``-q`` prints only the verdict and its metrics; ``-v`` also explains all terms."""
    screen.text(f"Migration of {contents.name}", style="bold")
    if not screen.quiet:
        screen.text(_summary_of_contents(contents))
    screen.line()
    if contents.verdict is not None:
        show_verdict_and_reason(contents.verdict, screen)
    else:
        screen.text(
            "Verdict: none yet. `chirp-migrate verify` trains the versions before and after the migration, and shows "
            "whether training is faster and unchanged."
        )
    for notice in contents.notices:
        screen.item("!", notice, indent=0, style="bold yellow")
    if contents.verdict is not None:
        screen.title("The verdict in figures")
        show_verify_details(contents.verdict, screen)
    if contents.doctor is not None and not screen.quiet:
        screen.title("Loading problems that doctor found")
        for problem in contents.doctor.problems:
            show_problem(problem, screen, several=len(contents.doctor.entry_points) > 1)
        screen.text(problem_summary(contents.doctor))
    for run in () if screen.quiet else contents.runs:
        show_run(run, screen)
    if screen.verbose:
        _show_terms(contents, screen)


def _summary_of_contents(contents: ReportContents) -> str:
    """Return the sentence at the beginning of a report that lists the parts of the report."""
    hunks = sum(hunk.kind == "rewrite" for file in contents.files for hunk in file.hunks)
    figures = "the verdict and its figures, " if contents.verdict is not None else ""
    return (
        f"Below: {figures}the result for each loader, the rules and {pluralize(hunks, 'hunk')}; -v explains the terms."
    )


def _show_terms(contents: ReportContents, screen: Screen) -> None:
    """Print each term with its meaning, and each metric with the method by which ``verify`` measures the metric."""
    screen.title("Terms")
    words = _OF_CHANGES | (_OF_VERDICTS if contents.verdict is not None else {})
    for word, meaning in words.items():
        screen.term(word, meaning)
    shown = [] if contents.verdict is None else measured_metrics(contents.verdict)
    if shown:
        screen.heading("How the key figures are measured")
    for one, *_ in shown:
        screen.term(one.title, f"{one.method}.")
