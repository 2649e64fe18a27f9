"""Settings of a discriminator, as its parts read them."""

from dataclasses import dataclass

# Weights of the two gradient penalties: at interpolated rows, and at the expert's.
UNIT_NORM, R1 = "unit_norm", "r1"
# Parts of a row that a discriminator may read.
OBSERVATION, ACTION, NEXT_OBSERVATION, TERMINATED = "obs", "actions", "next_obs", "terminated"
INPUTS = (OBSERVATION, ACTION, NEXT_OBSERVATION, TERMINATED)
# Statistics of updates.
STATS = (
    "discriminator_accuracy_expert",
    "discriminator_accuracy_policy",
    "discriminator_loss",
    "discriminator_entropy",
    "gradient_penalty",
)


@dataclass(frozen=True)
class DiscriminatorSettings:
    """How a discriminator learns, and what reward its logits give.

    Attributes:
        inputs: of INPUTS, the parts of a step that it reads; where it is shaped, those that g reads.
        hiddens: widths of its hidden layers.
        activation: activation function of the hidden layers, a name in ACTIVATIONS.
        normalize: bring each number of an observation to mean 0 and deviation 1 over both sides' rows.
        lr: learning rate of Adam.
        updates: gradient steps on a train batch.
        batch_size: rows of each side in a gradient step.
        gradient_penalty: weight; 0: none.
        penalty: UNIT_NORM or R1.
        label_smoothing: weight of the other label.
        reward_form: a key of REWARD_FORMS.
        is_shaped: the logit is AIRL's, f - log pi.
        absorbing: terminated episodes end in an absorbing state, with a row and a value.
        gamma: discount per step of shaping, of the absorbing state's value and of the sums that rewards are scaled by.
        generator_buffer: train batches whose rows are the policy's side, the newest included.
        reward_normalize: divide rewards by the standard deviation of their discounted sums.
        reward_clip: bound of the rewards after that; None: there is none.
    """

    inputs: tuple[str, ...] = (OBSERVATION, ACTION)
    hiddens: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    normalize: bool = True
    lr: float = 3e-3
    updates: int = 16
    batch_size: int = 256
    gradient_penalty: float = 1.0
    penalty: str = UNIT_NORM
    label_smoothing: float = 0.0
    reward_form: str = "gail"
    is_shaped: bool = False
    absorbing: bool = True
    gamma: float = 0.99
    generator_buffer: int = 1
    reward_normalize: bool = True
    reward_clip: float | None = 10.0

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a step that are in a row."""
        return (*self.inputs, NEXT_OBSERVATION, TERMINATED) if self.is_shaped else self.inputs
