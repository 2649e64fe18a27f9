"""Commands for users of Isaac Lab and mjlab, as those projects expect them of a library: train, play and export.

    python -m rllib.isaaclab train --task Isaac-Velocity-Flat-Anymal-D-v0 --headless
    python -m rllib.mjlab train --task Mjlab-Velocity-Flat-Unitree-Go1

docs/guide/environments.md, "Isaac Lab and mjlab".
"""
