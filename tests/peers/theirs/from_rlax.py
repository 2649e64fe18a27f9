"""rlax's formulas, for one sequence [T] or a batch by vmap. Their arrays are float32."""

import jax
import jax.numpy as jnp
import numpy as np
import rlax


def _columns(function, *arrays):
    """The function over the columns of [T, B] arrays: [T, B] again."""
    return np.asarray(jax.vmap(function, in_axes=1, out_axes=1)(*map(jnp.asarray, arrays)))


def advantages(settings, rewards, discounts, values, cut):
    """GAE of [T, B] fragments, values [T + 1, B]; `cut` [T, B] is 0 where the trace ends."""
    lambda_ = settings["lambda"] * jnp.asarray(cut)

    def of(r, d, lambdas, v):
        return rlax.truncated_generalized_advantage_estimation(r, d, lambdas, v)

    return {"advantages": _columns(of, rewards, discounts, lambda_, values)}


def vtrace(settings, values, next_values, rewards, discounts, rhos, lambdas):
    """Targets' errors and advantages of [T, B]."""

    def of(v, n, r, d, rho, lambdas):
        found = rlax.vtrace_td_error_and_advantage(
            v, n, r, d, rho, lambda_=lambdas,
            clip_rho_threshold=settings["rho_bar"], clip_pg_rho_threshold=settings["pg_rho_bar"],
        )  # fmt: skip
        return jnp.stack([found.errors, found.pg_advantage], -1)

    found = _columns(of, values, next_values, rewards, discounts, rhos, lambdas)
    return {"errors": found[..., 0], "advantages": found[..., 1]}


def lambda_returns(settings, rewards, discounts, values, lambdas):
    """[T, B]: r_t + d_t ((1 - l_t) v_t + l_t G_{t+1}); values are those that follow."""
    return {"returns": _columns(rlax.lambda_returns, rewards, discounts, values, lambdas)}


def n_step_returns(settings, rewards, discounts, values):
    """[T, B], values those that follow."""

    def of(r, d, v):
        return rlax.n_step_bootstrapped_returns(r, d, v, n=settings["n"])

    return {"returns": _columns(of, rewards, discounts, values)}


def projection(settings, support, probabilities, atoms):
    """Of distributions at `support` [B, N] to `atoms` [N]: [B, N]."""
    project = jax.vmap(rlax.categorical_l2_project, in_axes=(0, 0, None))
    return {"probabilities": np.asarray(project(*map(jnp.asarray, (support, probabilities, atoms))))}


def quantile_regression(settings, quantiles, levels, targets):
    """Losses [B] and gradients [B, N] by the quantiles."""

    def loss(q, taus, t):
        return rlax.quantile_regression_loss(q, taus, t, huber_param=settings["huber"])

    both = jax.vmap(jax.value_and_grad(loss))
    losses, gradients = both(*map(jnp.asarray, (quantiles, levels, targets)))
    return {"losses": np.asarray(losses), "gradients": np.asarray(gradients)}


def surrogate(settings, logits, old_logits, actions, advantages):
    """PPO's clipped surrogate and the entropy bonus with gradients by the logits [B, K]."""

    def loss(logits):
        log_probs = jax.nn.log_softmax(logits)[jnp.arange(len(actions)), actions]
        old = jax.nn.log_softmax(old_logits)[jnp.arange(len(actions)), actions]
        weights = jnp.ones(len(actions))
        clipped = rlax.clipped_surrogate_pg_loss(jnp.exp(log_probs - old), advantages, settings["clip"])
        return clipped + settings["entropy"] * rlax.entropy_loss(logits, weights)

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(logits))
    return {"loss": np.asarray(value), "gradient": np.asarray(gradient)}


def policy_gradient(settings, logits, actions, advantages):
    """Loss and gradient by the logits [B, K]."""

    def loss(logits):
        return rlax.policy_gradient_loss(logits, actions, advantages, jnp.ones(len(actions)))

    value, gradient = jax.value_and_grad(loss)(jnp.asarray(logits))
    return {"loss": np.asarray(value), "gradient": np.asarray(gradient)}


def double_q(settings, q, actions, rewards, discounts, target_q, selector):
    """TD errors [B], target - value, of double Q-learning."""
    found = jax.vmap(rlax.double_q_learning)(*map(jnp.asarray, (q, actions, rewards, discounts, target_q, selector)))
    return {"errors": np.asarray(found)}


def signed_hyperbolic(settings, values):
    """R2D2's rescaling of returns, there and back."""
    there = rlax.signed_hyperbolic(jnp.asarray(values), settings["epsilon"])
    back = rlax.signed_parabolic(jnp.asarray(values), settings["epsilon"])
    return {"there": np.asarray(there), "back": np.asarray(back)}
