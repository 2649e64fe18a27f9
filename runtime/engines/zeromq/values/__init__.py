"""Values and references: serialization, shared memory, streams of results."""
