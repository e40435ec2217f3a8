"""What a Bellman label is made from: `label` has the steps, `context` what they see, the rest are speed-ups."""
