"""An experiment and its trials as data, and their files."""
