"""Ray's names of errors, and what is imported when."""

import subprocess
import sys

import pytest

import runtime


@pytest.mark.parametrize(
    "name, ours",
    [
        ("RayError", runtime.RuntimeFailure),
        ("RaySystemError", runtime.RuntimeFailure),
        ("RayTaskError", runtime.TaskError),
        ("RayActorError", runtime.ActorError),
        ("GetTimeoutError", runtime.GetTimeoutError),
    ],
)
def test_errors_have_the_names_of_ray(name, ours):
    assert getattr(runtime.exceptions, name) is ours and getattr(runtime.errors, name) is ours


def test_the_helpers_need_no_import_of_their_own():
    source = "import runtime, sys; assert 'runtime.util' not in sys.modules; print(runtime.util.ActorPool.__name__)"
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert result.stdout == "ActorPool\n", result.stderr
    with pytest.raises(AttributeError, match="module 'runtime' has no attribute 'utils'"):
        runtime.utils  # noqa: B018
