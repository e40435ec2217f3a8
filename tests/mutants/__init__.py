"""Changes to the source that the tests must notice, as data (`*.json`), and the command that tries them all.

A mutant is one replacement of source text: `file`, `old`, `new`, and the `tests` that should fail with it.  A mutant
that changes nothing observable is marked `equivalent`, with a `note` that says why.
"""
