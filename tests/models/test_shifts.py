"""Random shifts of images: against a loop over pixels, for every form in which images are stored."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict

from rllib.models.catalog.catalog import policy_spec
from rllib.models.observations.in_torch import shifted
from tests.gpu import DEVICES

ROWS, MOST = 7, 4
FILTERS = {"conv_filters": [[4, 3, 1]]}
SPACES = {
    "channels last": Box(0, 255, (6, 9, 3), np.uint8),
    "channels first": Box(0, 255, (3, 6, 9), np.uint8),
    "no channels": Box(0, 255, (6, 9), np.uint8),
    "floats": Box(0, 1, (6, 9, 2), np.float32),
    "two images and numbers": Dict(
        a=Box(0, 255, (6, 9, 1), np.uint8), b=Box(-1, 1, (3,)), c=Box(0, 255, (2, 5, 7), np.uint8)
    ),
}


def torso_of(space):
    return policy_spec(space, Box(-1, 1, (1,)), FILTERS).torso


def stored_rows(space, rng):
    if isinstance(space, Dict):
        return rng.integers(0, 256, (ROWS, 6 * 9 + 3 + 2 * 5 * 7)).astype(np.float32)
    return (rng.random((ROWS, *space.shape)) * 255).astype(space.dtype)


def slowly_shifted(torso, rows, shifts):
    """Every pixel of an image comes from the place that its shift says, or from the nearest one of the image."""
    flat = rows.reshape(len(rows), -1).copy()
    for number, image in enumerate(torso.images):
        before = rows.reshape(len(rows), -1)[:, image.start : image.start + image.size].reshape(-1, *image.shape)
        after = before.copy()
        height, width, _ = image.pixels
        for row in range(len(rows)):
            down, right = shifts[row, number].tolist()
            for y in range(height):
                for x in range(width):
                    from_y, from_x = min(max(y + down, 0), height - 1), min(max(x + right, 0), width - 1)
                    if image.channels_first:
                        after[row, :, y, x] = before[row, :, from_y, from_x]
                    else:
                        after[row, y, x] = before[row, from_y, from_x]
        flat[:, image.start : image.start + image.size] = after.reshape(len(rows), -1)
    return flat.reshape(rows.shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_pixels_come_from_their_places(space, device):
    rng, torso = np.random.default_rng(0), torso_of(space)
    rows = stored_rows(space, rng)
    shifts = rng.integers(-MOST, MOST, (ROWS, len(torso.images), 2), np.int16, endpoint=True)
    given = torch.from_numpy(rows.copy()).to(device)
    found = shifted(torso, given, torch.from_numpy(shifts).to(device))
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found.cpu(), slowly_shifted(torso, rows, shifts))
    np.testing.assert_array_equal(given.cpu(), rows)  # the replay's rows stay as they are


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_no_shift_changes_nothing(space):
    torso = torso_of(space)
    rows = torch.from_numpy(stored_rows(space, np.random.default_rng(1)))
    assert torch.equal(shifted(torso, rows, torch.zeros(ROWS, len(torso.images), 2, dtype=torch.int16)), rows)


def test_a_shift_is_the_crop_of_a_padded_image():
    """As DrQ-v2 describes it: four pixels of padding that repeat the edge, then a crop."""
    rng, torso = np.random.default_rng(2), torso_of(SPACES["channels first"])
    rows = stored_rows(SPACES["channels first"], rng)
    padded = torch.nn.functional.pad(torch.from_numpy(rows).float(), (MOST,) * 4, mode="replicate")
    down, right = 7, 2
    crops = padded[:, :, down : down + 6, right : right + 9]
    shifts = torch.tensor([down - MOST, right - MOST]).expand(ROWS, 1, 2)
    assert torch.equal(shifted(torso, torch.from_numpy(rows), shifts).float(), crops)
