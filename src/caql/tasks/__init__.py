"""Tasks of our own whose actions are constrained: a microgrid and Platform.

Each is an ordinary Gymnasium environment with a method `action_set(observation)`, the admissible actions of a state.
"""
