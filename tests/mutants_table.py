"""The mutants: small faults put into the code on purpose, each with the tests that must notice it.

Add one for each promise that would be expensive to break unseen. Run them with `make mutants`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str  # what is broken, in a few words with dashes: `stale-epoch-writes`
    file: str  # from the root of the repository: `src/holdfast/journal/fold.py`
    old: str  # occurs exactly once in the file
    new: str
    tests: str  # what follows `pytest` on the command line, and must go red


MUTANTS: list[Mutant] = []
