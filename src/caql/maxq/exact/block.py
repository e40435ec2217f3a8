"""What the exact solver is called with: a `Block` of sizes and addresses.

Python (`exact`) and XLA's compiled code (`custom_call`) call the same C function, `branching.solve_block`, with the
address of a block.
"""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """A batch of problems.  Arrays by address: float64, except sizes, counter and stop (int64) and wanted (bytes)."""

    batch: int
    hidden: int
    """Hidden layers."""
    width: int
    """Units of the first."""
    parameters: int
    """Length of `flat`."""
    sizes: int
    flat: int
    first_bias: int
    low: int
    high: int
    tolerance: int
    """(2, batch): absolute, relative."""
    wanted: int
    counter: int
    """(2,): the next row, and the row to stop before."""
    actions: int
    answer: int
    limits: int
    """(2,) floats: nodes, seconds."""
    threads: int
    """At most so many."""
    itself: int
    """The address of `solve_block`, for the threads that it makes."""
    stop: int
    """(1,): when another thread writes anything but 0, every row ends with what is known of it."""


FIELDS = len(Block._fields)
BATCH, WANTED, COUNTER, THREADS, ITSELF = map(Block._fields.index, ("batch", "wanted", "counter", "threads", "itself"))
