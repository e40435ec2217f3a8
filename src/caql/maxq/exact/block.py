"""What the exact solver is called with: a `Block` of sizes and addresses.

Python (`solver`) and XLA's compiled code (`xla_call`) call the same C function, `search.solve_block`, with the
address of a block.  Both sides find a field by name: `block[AT.batch]`.
"""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """A batch of problems, as words of eight bytes.

    Arrays are given by address: float64, except sizes, counter and stop (int64) and wanted (bytes).
    """

    batch: int
    hidden: int
    """Hidden layers."""
    width: int
    """Units of the first."""
    parameters: int
    """Length of `flat`."""
    sizes: int
    """(hidden + 1,): actions, then the hidden layers' units."""
    flat: int
    """(parameters,): the action weights, then each later layer's weights and bias."""
    first_bias: int
    """(batch, width)"""
    variables: int
    """Actions and auxiliary variables."""
    low: int
    """(batch, variables), and `high` likewise."""
    high: int
    row_count: int
    """Rows of the action sets."""
    row_states: int
    """`batch`, or 1 for rows that all states share."""
    rows: int
    """(row_states, row_count, variables)"""
    row_low: int
    """(batch, row_count), and `row_high` likewise."""
    row_high: int
    whole: int
    """(variables,): not zero for whole numbers."""
    tolerance: int
    """(2, batch): absolute, relative."""
    wanted: int
    """(batch,): 1 where a row is asked for; `screen` writes the status of the rows it refuses."""
    counter: int
    """(2,): the next row, and the row to stop before."""
    actions: int
    """(batch, variables): warm starts, then the answer's actions and auxiliary variables."""
    answer: int
    """(batch, ANSWER): value, upper bound, status, nodes, pivots, and 1 if the action satisfies all rows to the bit."""
    limits: int
    """(2,) floats: nodes, seconds."""
    threads: int
    """At most so many."""
    itself: int
    """The address of `solve_block`, for the threads that it makes."""
    stop: int
    """(1,): when another thread writes anything but 0, every row ends with what is known of it."""


ANSWER = 6
FIELDS = len(Block._fields)
AT = Block(*range(FIELDS))
"""Where each field is, counted in words."""
