"""What every command ends with, in one place; docs/exit-codes.md shows this table."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode", "epilog"]


class ExitCode(IntEnum):
    """Exit codes, the same for all commands."""

    OK = 0
    WORK_REMAINS = 1
    USAGE = 2
    REFUSED = 3
    UNDONE = 4
    CHECK_FAILED = 5
    NOT_SHOWN = 10
    MODEL_BOUND = 11
    SLOWER = 12
    NOT_EQUIVALENT = 13
    WORKLOAD_FAILED = 14
    UNDECIDED = 15
    INTERNAL = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141

    @property
    def meaning(self) -> str:
        """One line on it."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "done, or nothing to do; for check: clean; for verify: faster by the threshold, and equivalent",
    ExitCode.WORK_REMAINS: "something is left: files that could not be handled, or, for check, work for apply",
    ExitCode.USAGE: "the path, an option, a setting or a plan cannot be worked with",
    ExitCode.REFUSED: "refused, nothing was changed: work could be lost, or another run is under way",
    ExitCode.UNDONE: "the system did not let us write; what had been written was undone",
    ExitCode.CHECK_FAILED: "the command given to --check-with failed, and everything was rolled back",
    ExitCode.NOT_SHOWN: "verify: not shown to be faster",
    ExitCode.MODEL_BOUND: "verify: model-bound, no loader could save that much",
    ExitCode.SLOWER: "verify: slower",
    ExitCode.NOT_EQUIVALENT: "verify: not the same training",
    ExitCode.WORKLOAD_FAILED: "verify, tune: the project's own code failed",
    ExitCode.UNDECIDED: "verify: faster, and of some entry points it is not shown whether they are slower",
    ExitCode.INTERNAL: "a defect of chirp-migrate; --debug shows where",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.PIPE_CLOSED: "the reader of the output went away",
}


def epilog(codes: dict[ExitCode, str], *examples: str) -> str:
    """End of a command's help: what its exit codes mean there, and examples."""
    meanings = "; ".join(f"{int(code)} {text}" for code, text in codes.items())
    shown = "\n".join(f"  {example}" for example in examples)
    return f"Exit codes: {meanings}.\n\n\b\nExamples:\n{shown}"
