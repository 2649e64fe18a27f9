"""The directory of a run: its files, its pictures, and the process next to the run that writes the slow ones."""
