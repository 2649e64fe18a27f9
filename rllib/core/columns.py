"""Columns of batches by the names that programs for RLlib's new API stack use."""

from rllib import sample_batch as sb


class Columns:
    """Names of columns. A batch has those that its algorithm computes (docs/project/extend.md)."""

    OBS = sb.OBS
    INFOS = "infos"
    ACTIONS = sb.ACTIONS
    ACTIONS_FOR_ENV = "actions_for_env"
    REWARDS = sb.REWARDS
    TERMINATEDS = sb.TERMINATEDS
    TRUNCATEDS = sb.TRUNCATEDS
    NEXT_OBS = sb.NEXT_OBS
    EPS_ID = "eps_id"
    AGENT_ID = "agent_id"
    MODULE_ID = "module_id"
    SEQ_LENS = "seq_lens"
    T = "t"
    STATE_IN = "state_in"
    NEXT_STATE_IN = "next_state_in"
    STATE_OUT = "state_out"
    NEXT_STATE_OUT = "next_state_out"
    EMBEDDINGS = "embeddings"
    ACTION_DIST_INPUTS = sb.ACTION_DIST_INPUTS
    ACTION_PROB = "action_prob"
    ACTION_LOGP = sb.ACTION_LOGP
    VF_PREDS = sb.VF_PREDS
    VALUES_BOOTSTRAPPED = "values_bootstrapped"
    ADVANTAGES = sb.ADVANTAGES
    VALUE_TARGETS = sb.VALUE_TARGETS
    INTRINSIC_REWARDS = "intrinsic_rewards"
    RETURNS_TO_GO = "returns_to_go"
    LOSS_MASK = sb.LOSS_MASK
