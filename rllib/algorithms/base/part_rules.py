"""Rules between parts of a run that an algorithm's methods make, so that they cannot be checked on the settings."""

from rllib.config.conflicts import DEFAULT, Unfit
from rllib.evaluation.callbacks import hears
from rllib.losses.user.auxiliary import columns_of
from rllib.sample_batch import NAMES


def refuse_absent_columns(algorithm, trainee) -> None:
    """Raises a ValueError for columns that user losses read and that no batch of this run can have.

    Only if no user code can add columns to batches.
    """
    callbacks, custom = algorithm.callbacks, trainee.config.custom_loss
    adds = hears(callbacks, "on_learn_on_batch") or hears(callbacks, "on_postprocess_trajectory")
    if adds or algorithm.recorded is not None or not type(algorithm).__module__.startswith("rllib."):
        return
    asked = [*(name for part in algorithm.auxiliary_losses for name in part.columns), *columns_of(custom)]
    made = algorithm.postprocess_of(trainee.policy_id).columns
    known = {*NAMES, *(column.name for column in (*made, *algorithm.config.get_info_columns()))}
    for name in asked:
        if name not in known:
            raise Unfit(
                f"a loss of .training() reads the column {name!r}, but no batch has it.",
                f"Columns are {', '.join(sorted(known))}; .environment(info_columns={{...}}) makes more of the "
                "environment's infos.",
                dict.fromkeys(("auxiliary_losses", "custom_loss"), DEFAULT),
            )


def refuse_memory(algorithm, policy_id: str, *parts) -> None:
    """Raises an error if a policy is recurrent and one of these parts, such as its exploration, does not support it."""
    config, spec = algorithm.config_of(policy_id), algorithm.policies[policy_id].spec
    for part in parts if spec.state_size else ():
        if part.without_memory:
            raise Unfit.of(config.no_memory(part.without_memory, spec, part.left_out_by))
