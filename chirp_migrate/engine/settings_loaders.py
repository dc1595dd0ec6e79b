"""Find loaders that configuration files name, such as ``_target_: torch.utils.data.DataLoader`` in a Hydra file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chirp_migrate.plans.plan import Finding, FindingStatus, Safety
from chirp_migrate.rules import Rule

_LOADER = re.compile(r"""_target_["']?[ \t]*[:=][ \t]*["']?torch\.utils\.data\.(?:dataloader\.)?DataLoader\b""")
_MESSAGE = (
    "not rewritten: a configuration file names `DataLoader`; replace the name by "
    "`chirpid_patch.OptimalDataLoaderFactory.create_loader`, which takes the same arguments"
)


def find_loaders_in_config_file(path: str, text: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Yield a finding for each loader that a configuration file names.

    The findings have the code of the rule that counts loaders (CHP001).

    Args:
        path: posix path relative to the root.
        text: text of the file.
        rules: the rules that run. Without CHP001, the function yields no finding.
    """
    rule = next((one for one in rules if one.counts_sites), None)
    if rule is None or "DataLoader" not in text:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _LOADER.finditer(line.partition("#")[0]):
            yield Finding(
                rule=rule.code,
                name=rule.name,
                path=path,
                line=number,
                column=match.start() + 1,
                message=_MESSAGE,
                safety=Safety.ADVICE,
                status=FindingStatus.REPORT,
                why="in-settings",
                reason=rule.reason,
            )
