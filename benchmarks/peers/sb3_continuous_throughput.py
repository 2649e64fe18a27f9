"""Stable-Baselines3's and sb3-contrib's SAC, TD3, DDPG, CrossQ and TQC: environment steps a second, with updates."""

from continuous_common import options, stable_baselines


def main() -> None:
    given = options(__doc__)
    import sb3_contrib
    import stable_baselines3
    import torch
    from sb3_common import versions

    torch.set_num_threads(1)  # with two, whatever else runs on the machine slows it down many times
    library = stable_baselines3 if hasattr(stable_baselines3, given.algorithm) else sb3_contrib
    contrib = {"sb3_contrib": sb3_contrib.__version__}
    stable_baselines(getattr(library, given.algorithm), given, {**versions(), **contrib})


if __name__ == "__main__":
    main()
