"""What programs for Stable-Baselines3, sb3-contrib, SBX and RL Zoo import (names_of_sb3.py)."""
