"""The base of all algorithms: building, training, evaluating, saving and reporting."""
