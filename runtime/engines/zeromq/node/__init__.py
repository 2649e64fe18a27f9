"""The node: the process that schedules, supervises and accounts for a session."""
