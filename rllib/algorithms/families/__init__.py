"""Code shared by the members of a family of algorithms."""
