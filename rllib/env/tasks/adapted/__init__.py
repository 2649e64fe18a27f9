"""Tasks of other packages, with observations of other sizes."""
