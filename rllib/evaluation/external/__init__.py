"""Workers whose environments drive their own loop."""
