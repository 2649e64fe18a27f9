"""Ray's names and ours: the table, the modules that serve them to programs for Ray, and the rewriting of imports.

`import rllib.as_ray` installs the import hook. Importing a module of this package does not.
"""
