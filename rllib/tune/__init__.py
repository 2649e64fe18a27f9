"""What surrounds a training run: its files, when it stops, and (later) searching over many runs."""
