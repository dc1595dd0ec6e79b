"""Remove the safety conditions of the rules one at a time, and check that a test detects each removal.

A safety condition is a condition under which a rule does not rewrite code. The removal of a condition can be detected
in three ways. First, a program in fixtures/rules that must not be rewritten is rewritten or leads to an error. Second,
a ``before.py`` of a rule no longer becomes its ``after.py``. Third, a random program of the check `soundness` behaves
differently after its migration. Each condition that the docstring of a rule names has a program in fixtures/rules. The
exit code is 1 if one of these programs detects no removal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from types import FrameType

import click

from benchmarks.harness import QA_RESULTS, ROOT, Progress, conditions, write
from chirp_migrate.engine.rewrite_file import rewrite_text
from chirp_migrate.plans.plan import Safety
from chirp_migrate.rules import Rule, all_rules
from chirp_migrate.syntax.project import Project
from qa.rule_cases import cases
from qa.soundness_programs.mutants import Mutant, forget, judging_modules, mutants_of

_PAIRS = ROOT / "fixtures" / "rules"
#: Seconds after which the migration of a program has no end. Usually a migration takes 0.1 s.
_PROGRAM_S = 20.0


@dataclass(frozen=True)
class Detection:
    """The programs that detect the removal of a condition.

    Attributes:
        mutant: module and function of the condition.
        module: name of the module of the condition.
        line: line of the condition.
        text: the condition.
        rewritten: programs in fixtures/rules that must not be rewritten, and are rewritten without the condition.
        broken: codes of the rules whose ``before.py`` no longer becomes ``after.py``.
        random: numbers of the random programs that behave differently after their migration.
        has_no_end: whether the migration of a program takes too long without the condition.
    """

    mutant: str
    module: str
    line: int
    text: str
    rewritten: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    random: tuple[int, ...] = ()
    has_no_end: bool = False

    @property
    def is_detected(self) -> bool:
        """Return whether anything detected the removal of the condition."""
        return bool(self.rewritten or self.broken or self.random or self.has_no_end)


def rewriting_rules(codes: Iterable[str]) -> list[Rule]:
    """Return the rules that rewrite by default, or the rules with these codes."""
    chosen = set(codes)
    return [one for one in all_rules() if (one.code in chosen if chosen else one.safety is Safety.SAFE)]


@click.command()
@click.option("--rule", "codes", multiple=True, help="Conditions of this rule only, such as CHP002. [all safe rules]")
@click.option("--module", "only", multiple=True, help="Conditions in this module only, such as movability. [all]")
@click.option("--random", default=0, show_default=True, help="Random programs to run if nothing else detects a loss.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="Number of processes.")
@click.option("--write", "save", is_flag=True, help="Write qa/results/mutations.md.")
def main(codes: tuple[str, ...], only: tuple[str, ...], random: int, jobs: int, save: bool) -> None:
    """Switch off each condition, and check whether a test detects this."""
    progress = Progress()
    rules = rewriting_rules(codes)
    detections = list(_detections(rules, only, random, jobs, progress))
    progress.end()
    lines = [*_requirements(rules, detections), "", *_modules(detections)]
    text = "\n".join(lines)
    click.echo(f"{text}\n\n{progress.seconds:.0f} s")
    if save:
        head = "# Conditions of the rules, switched off one at a time"
        write(QA_RESULTS, "mutations", f"{head}\n\n`{conditions()['command']}`\n\n{text}\n")
    sys.exit(1 if any("| **none** |" in line for line in lines) else 0)


def _detections(
    rules: list[Rule], only: tuple[str, ...], random: int, jobs: int, progress: Progress
) -> Iterator[Detection]:
    names = sorted(set().union(*(judging_modules(rule) for rule in rules)))
    names = [name for name in names if not only or name.rpartition(".")[2] in only]
    mutants = [(name, place) for name in names for place, _ in enumerate(mutants_of(name))]
    codes = tuple(rule.code for rule in rules)
    context = get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for number, one in enumerate(pool.map(partial(_detect, codes, random), mutants, chunksize=8)):
            progress.count(number + 1, len(mutants))
            yield one


def _detect(codes: tuple[str, ...], random: int, which: tuple[str, int]) -> Detection:
    name, place = which
    mutant = _mutants(name)[place]
    for rule in rewriting_rules(codes):  # trace the calls of all programs before the condition is switched off
        for title in cases(rule.code):
            _called(rule.code, title)
    short = name.rpartition(".")[2]
    detection = Detection(f"{short}.{mutant.function}", short, mutant.line, mutant.text)
    try:
        return _run_programs(mutant, codes, random, name, detection)
    except _NoEnd:
        return replace(detection, has_no_end=True)


def _run_programs(mutant: Mutant, codes: tuple[str, ...], random: int, name: str, detection: Detection) -> Detection:
    """Migrate all programs without the condition, and return ``detection`` with the programs that detect this."""
    with mutant():
        rules = [rule for rule in rewriting_rules(codes) if name in judging_modules_of(rule.code)]
        broken = tuple(rule.code for rule in rules if _is_broken(rule))
        results = {
            f"{rule.code} {title}": _is_rewritten(rule, texts)
            for rule in rules
            for title, texts in cases(rule.code).items()
            if mutant.place in _called(rule.code, title)
        }
        # An error counts as detection, unless it occurs for every program.
        refused = {title.partition(" ")[0] for title, result in results.items() if result is False}
        rewritten = tuple(
            title
            for title, result in results.items()
            if result or (result is None and title.partition(" ")[0] in refused)
        )
    found: tuple[int, ...] = ()
    if random and not (rewritten or broken):
        found = tuple(_differing(mutant, random))
    return replace(detection, rewritten=rewritten, broken=broken, random=found)


def _is_rewritten(rule: Rule, texts: dict[str, str]) -> bool | None:
    """Return whether the rule rewrites a program; None if it raises an error."""
    results = [_migrated(rule, texts, path) for path in texts]
    return None if None in results else results != list(texts.values())


def _is_broken(rule: Rule) -> bool:
    path, after = "rule/before.py", (_PAIRS / rule.code / "after.py").read_text(encoding="utf-8")
    return _migrated(rule, {path: (_PAIRS / rule.code / "before.py").read_text(encoding="utf-8")}, path) != after


def _migrated(rule: Rule, texts: dict[str, str], path: str) -> str | None:
    """Return the text of ``path`` after the rule has run; None if the rule raises an error."""
    others = {f"rule/{one.name}": one.read_text(encoding="utf-8") for one in (_PAIRS / rule.code).glob("*.py")}
    others = {name: text for name, text in others.items() if name not in ("rule/before.py", "rule/after.py")}
    try:
        with _time_limit(_PROGRAM_S):
            return rewrite_text(path, texts[path], Project({**others, **texts}), unsafe=True, rules=[rule])[0]
    except Exception:
        return None


class _NoEnd(BaseException):
    """The migration of a program takes too long. The class is no ``Exception``, so that no rule catches the error."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise an error if the block takes longer than ``seconds``: without a condition, a loop may have no end."""

    def stop(*_: object) -> None:
        raise _NoEnd

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@cache
def _called(code: str, title: str) -> frozenset[tuple[str, int]]:
    """Return (file, line) of all functions that run when the rule checks a program.

    Conditions in other functions cannot affect the result for this program.
    """
    rule = next(rule for rule in all_rules() if rule.code == code)
    found = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    forget()
    sys.setprofile(profile)
    try:
        _is_rewritten(rule, cases(rule.code)[title])
    finally:
        sys.setprofile(None)
    return frozenset(found)


def _differing(mutant: Mutant, random: int) -> Iterator[int]:
    """Yield the number of the first random program that behaves differently after its migration."""
    from qa.soundness_programs.running import outcome_of

    before = _migrations(random)
    with mutant():
        for number, text in before.items():
            try:
                changed = _migration(number) != text
            except Exception:
                yield number
                return
            if changed and outcome_of(number).difference:
                yield number
                return


@cache
def _migrations(random: int) -> dict[int, str]:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return {number: _migration(number) for number in range(random)}


def _migration(number: int) -> str:
    from qa.soundness_programs.programs import make_program

    text = make_program(number).text
    return rewrite_text("made_up.py", text, Project({"made_up.py": text}), unsafe=False)[0]


@cache
def _mutants(name: str) -> list[Mutant]:
    return list(mutants_of(name))


@cache
def judging_modules_of(code: str) -> set[str]:
    """Return the modules that contain the conditions of the rule with this code."""
    return judging_modules(next(rule for rule in all_rules() if rule.code == code))


def _requirements(rules: list[Rule], detections: list[Detection]) -> list[str]:
    lines = ["| rule | requirement | programs | conditions whose loss a program detects |", "|---|---|--:|---|"]
    for rule in rules:
        programs: dict[str, list[str]] = {}
        for title in cases(rule.code):  # ``known-members.default`` is another program of ``known-members``
            programs.setdefault(title.partition(".")[0], []).append(f"{rule.code} {title}")
        for requirement, titles in programs.items():
            shown = [f"{one.mutant}:{one.line}" for one in detections if not set(titles).isdisjoint(one.rewritten)]
            lines.append(f"| {rule.code} | {requirement} | {len(titles)} | {', '.join(shown) or '**none**'} |")
    return lines


def _modules(detections: list[Detection]) -> list[str]:
    lines = ["| module | conditions | detected losses | conditions without detection |", "|---|--:|--:|---|"]
    for name in sorted({one.module for one in detections}):
        here = [one for one in detections if one.module == name]
        kept = [one for one in here if not one.is_detected]
        places = "<br>".join(f"{one.line}: `{one.text.replace('|', chr(92) + '|')}`" for one in kept)
        lines.append(f"| {name} | {len(here)} | {len(here) - len(kept)} | {places} |")
    return lines
