"""Several learners, an actor each, that compute one update together."""
