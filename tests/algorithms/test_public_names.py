"""Public names of an algorithm: those that users call, and those that authors of algorithms override or call."""

from pathlib import Path

from rllib import PPOConfig

PAGE = Path(__file__).parents[2] / "docs/project/extend.md"

FOR_USERS = """
    check_fit train learn evaluate stop profile iteration training_iteration timesteps num_updates seed config callbacks
    metrics
    save save_to_path restore restore_from_path from_checkpoint export_policy_model get_state set_state directory logdir
    compute_single_action compute_action compute_actions predict make_player get_policy policy policies
    step log_result cleanup save_checkpoint load_checkpoint export_policy_checkpoint trial_id trial_name
    env_runner env_runner_group evaluation_workers eval_env_runner_group
    load num_timesteps n_envs verbose device logger get_env get_vec_normalize_env get_parameters set_parameters
    get_weights set_weights observation_space action_space workers learner learners sample learn_on_batch rollout_device
    get_default_config default_resource_request
    goal recorded agents add_policy remove_policy set_policy_mapping_fn set_policies_to_train
    get_module add_module remove_module learner_group
"""
# docs/project/extend.md says what each is for.
FOR_AUTHORS = """
    config_class setup training_step loss make_postprocess make_policy_spec make_exploration
    make_workers recorded_rows extra_results algorithm_state set_algorithm_state train_batches snapshot
    snapshots
    reported_stats samples_sequences is_synchronous workers_learn initializer
    trains_several takes_tensors images_skip_layers learns_from_own_actions config_of policy_spaces
    policy_overrides policy_number by_trainee begin_training end_training streamed_rows trainee_class trainee trainees
    make_features features numbers postprocess_of auxiliary_losses auxiliary_weights agents_may_wait marks_waiting
    spans_directory taught_environment
"""


def test_an_algorithm_completes_no_other_names():
    with PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=0).build() as algo:
        names = {name for name in dir(algo) if not name.startswith("_")}
    assert names == {*FOR_USERS.split(), *FOR_AUTHORS.split()}


def test_each_name_for_authors_is_documented():
    text = PAGE.read_text()
    assert [name for name in FOR_AUTHORS.split() if name not in text] == []
