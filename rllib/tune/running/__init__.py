"""Running an experiment: trials, their processes, and the loop that decides."""
