"""Record the assignments of an abstract run, and combine the values of alternative branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chirp_migrate.analysis.objects.abstract_objects import Cells, Value, unite_values

#: Largest number of expressions and statements in the abstract run of a module (``STEPS``), and of a function that no
#: code calls (``STEPS_OF_UNCALLED_FUNCTION``).
STEPS = 20_000
STEPS_OF_UNCALLED_FUNCTION = 8_000


class StepLimitReached(Exception):
    """Raised if an abstract run reaches its limit of steps."""


class VariableStore:
    """The values of names, attributes and items (*cells*).

    The class logs each write, to combine the values that alternative branches write.
    """

    def __init__(self) -> None:
        self._log: list[tuple[Cells, object, Value | None]] | None = None
        self._left = STEPS

    def _write(self, cells: Cells, key: object, value: Value) -> None:
        if self._log is not None:
            self._log.append((cells, key, cells.get(key)))
        cells[key] = value

    def _add(self, cells: Cells, key: object, value: Value) -> None:
        self._write(cells, key, unite_values(cells.get(key, ()), value))

    def _delete(self, cells: Cells, key: object) -> None:
        if key in cells:
            if self._log is not None:
                self._log.append((cells, key, cells[key]))
            del cells[key]

    def _run_alternatives(self, alternatives: Sequence[Callable[[], bool]]) -> bool:
        """Run each alternative from the same state, and combine the resulting values.

        Returns:
            True if every alternative leaves the block, by ``return``, ``raise`` or similar.
        """
        finals: list[dict[tuple[int, object], tuple[Cells, Value | None]]] = []
        ends = True
        outer = self._log
        for alternative in alternatives:
            log: list[tuple[Cells, object, Value | None]] = []
            self._log, is_complete = log, False
            try:
                ended = alternative()
                is_complete = True
            finally:
                after = {(id(cells), key): (cells, cells.get(key)) for cells, key, _ in log}
                for cells, key, before in reversed(log):
                    if before is None and is_complete:
                        cells.pop(key, None)
                    elif before is not None:
                        cells[key] = before
                self._log = outer
                # If the run ends inside an alternative, the objects that this alternative and earlier alternatives
                # created keep their cells.
                for (_, key), (cells, value) in () if is_complete else (one for each in finals for one in each.items()):
                    if value is not None:
                        cells.setdefault(key, value)
            ends = ends and ended
            finals.append(after)
        for place in dict.fromkeys(one for final in finals for one in final):
            cells = next(final[place][0] for final in finals if place in final)
            before = cells.get(place[1])
            values = [final[place][1] if place in final else before for final in finals]
            known = [value for value in values if value is not None]
            if known:
                self._write(cells, place[1], unite_values(*known))
            else:
                self._delete(cells, place[1])
        return ends

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise StepLimitReached
