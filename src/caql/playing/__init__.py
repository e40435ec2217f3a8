"""A policy to look at: frames of its episodes, shown in a window or written to a file."""
