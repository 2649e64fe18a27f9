"""Remote functions and classes, their handles and references."""
