"""The admissible action set: what an action may be, as data, and the ways to write one down."""

from caql.actions.set import ActionSet, Array, make_box, squash

__all__ = ["ActionSet", "Array", "make_box", "squash"]
