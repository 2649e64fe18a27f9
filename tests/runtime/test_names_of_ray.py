"""Arguments by Ray's names, and advice for names of Ray that are not here."""

import pytest

import runtime


@runtime.remote
def double(number):
    return 2 * number


def test_references_are_given_by_rays_names(fresh):
    fresh("local")
    refs = [double.remote(1), double.remote(2)]
    assert runtime.get(object_refs=refs) == [2, 4]
    assert runtime.get(object_refs=refs[0], timeout=5) == 2
    for name in ("ray_waitables", "object_refs"):
        assert runtime.wait(**{name: refs}, num_returns=2) == (refs, [])
    runtime.cancel(ray_waitable=refs[0])
    runtime.cancel(object_ref=refs[1])
    for call in (runtime.get, runtime.wait, runtime.cancel):
        with pytest.raises(TypeError, match=r"takes .*, got None"):
            call()


def test_a_value_has_no_owner(fresh):
    @runtime.remote
    class Keeper:
        def nothing(self):
            return None

    fresh("local")
    keeper = Keeper.remote()
    assert runtime.get(runtime.put([1], _owner=keeper)) == runtime.get(runtime.put([1], _owner=None)) == [1]
    reference = runtime.put(2, _owner=keeper)
    runtime.kill(keeper)
    assert runtime.get(reference) == 2
    with pytest.raises(TypeError, match="_owner must be an actor's handle"):
        runtime.put(1, _owner=3)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("get_webui_url", "there is no dashboard"),
        ("register_custom_serializer", "use util.register_serializer"),
        ("ObjectID", "it is ObjectRef here"),
    ],
)
def test_a_name_of_ray_says_what_to_use(name, advice):
    with pytest.raises(AttributeError, match=f"module 'runtime' has no attribute '{name}': {advice}"):
        getattr(runtime, name)


def test_a_helper_of_ray_says_what_to_use():
    with pytest.raises(AttributeError, match=r"'runtime\.util' has no attribute 'log_once': use the module logging"):
        runtime.util.log_once  # noqa: B018
    with pytest.raises(AttributeError, match=r"'runtime\.util' has no attribute 'nothing'$"):
        runtime.util.nothing  # noqa: B018


@pytest.mark.parametrize("module", [runtime, runtime.util], ids=["runtime", "util"])
def test_no_row_is_a_name_that_is_here(module):
    assert [name for name in module._INSTEAD if hasattr(module, name)] == []
