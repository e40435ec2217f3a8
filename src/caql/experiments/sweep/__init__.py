"""Running many configurations: on local processes or on Ray, resumable."""
