"""`caql explore`: one page that shows Q over the actions, what each solver finds there, and the proof."""
