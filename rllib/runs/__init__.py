"""The directory of a run: its files, its pictures, and the process beside the run that writes the slow ones."""
