"""Names of settings, methods and classes of other libraries: what they are called here, and why some are absent."""
