"""What `caql bench` measures, and the trained networks it measures on (`networks/`)."""
