"""Several learners, each in an actor, that compute one update together."""
