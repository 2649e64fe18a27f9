"""Ray's names and ours: the table, the modules that serve them to programs for Ray, and the rewriting of imports.

`import rllib.as_ray` switches the serving on. Nothing here does so by being imported.
"""
