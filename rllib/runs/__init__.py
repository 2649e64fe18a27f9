"""The directory of a run: its files, what is drawn of it, and the process beside it that writes the slow ones."""
