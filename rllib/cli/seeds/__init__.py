"""Several seeds of one run: trained side by side, and compared."""
