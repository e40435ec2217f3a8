"""max over a of Q(x, a): the plug-in room."""
