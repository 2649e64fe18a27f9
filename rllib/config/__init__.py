"""Config objects: settings, declared once, in sections, under the names of every era of RLlib."""
