"""Networks written by users."""
