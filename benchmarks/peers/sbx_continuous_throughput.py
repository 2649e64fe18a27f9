"""SBX, which is Stable-Baselines3 in JAX: SAC, TD3, DDPG, CrossQ and TQC, environment steps a second, with updates."""

from continuous_common import options, stable_baselines


def main() -> None:
    given = options(__doc__)
    import jax
    import sbx

    stable_baselines(getattr(sbx, given.algorithm), given, {"sbx": sbx.__version__, "jax": jax.__version__})


if __name__ == "__main__":
    main()
