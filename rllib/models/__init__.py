"""Networks, action distributions, filters, and the catalog that chooses them from an environment's spaces."""
