"""Services of the operating system: signals, stacks, traces, files."""
