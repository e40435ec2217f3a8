"""Tasks of our own, most with constrained actions: a microgrid, Platform, and the public benchmark for action
constraints; and Dot, whose observations are images.

They are ordinary Gymnasium environments; where the admissible actions depend on the state they have a method
`action_set(observation)`.  The benchmark's problems are Gymnasium's robots, each with a function of the observations.
"""
