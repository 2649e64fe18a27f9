"""Online learning of a served policy: from decisions and their rewards to candidates, and whether they are promoted."""
