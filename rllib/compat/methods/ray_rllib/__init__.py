"""Names, methods and settings by which programs for Ray RLlib use an algorithm."""
