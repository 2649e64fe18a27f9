"""A worker process: it runs tasks one after the other, or is one actor."""
