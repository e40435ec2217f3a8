"""Q-learning for continuous actions in which every greedy action can be proved optimal."""
