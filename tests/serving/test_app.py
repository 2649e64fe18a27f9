"""Requests and their answers, through ASGI."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from serving_support import CARTPOLE, OBSERVATION, AppClient, cartpole_rows, write_version

import rllib
from rllib import PPOConfig
from rllib.serving.candidate import Candidate
from rllib.serving.counts import Counts
from rllib.serving.messages import ActRequest
from rllib.storage.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from tests.envs import BoundedAction, MaskedProbe, SampledEnv, StructuredProbe
from tests.multi_agent import NameTheSignal

LSTM = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}


def served(source: Path, scenario, **settings):
    """What `scenario(client)` returns."""

    async def run():
        return await scenario(AppClient(source, **settings))

    return asyncio.run(run())


def answered(source: Path, *request, settings=None, **more):
    """The answer to one request."""
    return served(source, lambda client: client(*request, **more), **(settings or {}))


def saved(path: Path, env, env_config=None, model=None, **environment) -> Path:
    """A checkpoint of an untrained PPO."""
    config = PPOConfig().environment(env, env_config=env_config or {}, **environment)
    with config.training(model={"fcnet_hiddens": [8], **(model or {})}).debugging(seed=1).build() as algo:
        return algo.save(path)


def test_one_observation_gives_one_action(tmp_path):
    for action in (0, 1):
        path = write_version(tmp_path / str(action), 40 + action, action)
        answer = answered(path, "POST", "/act", {"observation": OBSERVATION})
        assert answer.status == 200 and answer.headers["content-type"] == "application/json"
        assert answer.json() == {"action": action, "policy_version": 40 + action}


def test_several_observations_give_the_actions_of_the_policy():
    rows = cartpole_rows(200)
    expected = rllib.load_policy(CARTPOLE).compute_actions(rows, explore=False).tolist()
    assert set(expected) == {0, 1}
    bodies = {
        "application/json": json.dumps({"observations": rows.tolist()}).encode(),
        "application/msgpack": msgspec.msgpack.encode(
            {"observations": [{"$array": ["float32", [4], row.tobytes()]} for row in rows]}
        ),
    }
    for kind, body in bodies.items():
        answer = answered(CARTPOLE, "POST", "/act", body, content_type=kind)
        decode = msgspec.json.decode if kind.endswith("json") else msgspec.msgpack.decode
        assert decode(answer.body) == {"actions": expected, "policy_version": 3}
    raw = answered(CARTPOLE, "POST", "/act", rows.tobytes(), content_type="application/octet-stream")
    assert np.frombuffer(raw.body, np.int64).tolist() == expected and raw.headers["x-policy-version"] == "3"


def test_requests_that_come_together_share_forward_passes():
    rows = cartpole_rows(200).tolist()

    async def scenario(client):
        answers = await asyncio.gather(*(client.act({"observation": row}) for row in rows))
        return [answer.json()["action"] for answer in answers], client.counts

    actions, counts = served(CARTPOLE, scenario, max_batch=64)
    assert actions == rllib.load_policy(CARTPOLE).compute_actions(rows, explore=False).tolist()
    assert counts.of_all("batches") == 4 and counts.of_all("actions") == 200


def test_exploring_samples_actions_and_nothing_else_does():
    async def scenario(client):
        asked = [client.act({"observation": OBSERVATION, "explore": number % 2 == 0}) for number in range(200)]
        return [answer.json()["action"] for answer in await asyncio.gather(*asked)]

    actions = served(CARTPOLE, scenario)
    assert set(actions[::2]) == {0, 1} and len(set(actions[1::2])) == 1


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"observation": [0, 0, 0]}, 422, r"has shape \(3,\), but .* needs shape \(4,\)"),
        ({"observation": "left"}, 422, "needs numbers"),
        ({"observation": [[0], [0, 1]]}, 422, "ragged list"),
        ({"observation": {"x": 1}}, 422, "needs numbers"),
        ({"observations": [OBSERVATION, [0, 0, 0]]}, 422, r"observation 1 of 2: .*needs shape"),
        ({"observations": [OBSERVATION] * 300 + [[0, 0, 0]]}, 422, r"observation 300 of 301: .*needs shape \(4,\)"),
        ({"observations": [OBSERVATION] * 7 + [[]] * 300}, 422, r"observation 7 of 307: .*has shape \(0,\)"),
        ({"observations": OBSERVATION}, 422, r"observation 0 of 4: .*needs shape \(4,\)"),
        ({"observations": []}, 422, "at least one observation"),
        ({"observations": 3}, 422, "must be a list"),
        ({"observations": [OBSERVATION], "states": [[], []]}, 422, "states must be a list with one item for each"),
        ({"observation": OBSERVATION, "state": [[1.0]]}, 422, "this policy has no memory"),
        ({"observation": OBSERVATION, "action_mask": [1, 1]}, 422, "has no use here: this policy knows of no masks"),
        ({"observation": OBSERVATION, "explore": 1}, 422, r"Expected `bool`, got `int` - at `\$\.explore`"),
        ({"obs": OBSERVATION}, 422, "unknown field `obs`"),
        ({}, 422, "either observation or observations is needed"),
        ([], 422, "Expected `object`, got `array`"),
        (b"", 400, "the body is not JSON"),
        (b'{"observation": [NaN, 0, 0, 0]}', 400, "the body is not JSON"),
        (b'{"observation": ' + b"[" * 100_000, 400, "the body is not JSON"),
        (b"\xff\xfe{}", 400, "the body is not JSON"),
        (b" " * 2**21, 413, "may have 1048576 bytes"),
    ],
)
def test_a_wrong_request_is_told_what_was_expected(body, status, message):
    async def scenario(client):
        wrong, right = await asyncio.gather(client.act(body), client.act({"observation": OBSERVATION}))
        return wrong, right, await client.act({"observation": OBSERVATION})

    wrong, *right = served(CARTPOLE, scenario)
    assert wrong.status == status, wrong.body
    assert "\n" not in wrong.json()["error"]
    assert re.search(message, wrong.json()["error"]), wrong.json()["error"]
    assert [answer.status for answer in right] == [200, 200]


@pytest.mark.parametrize("kind", ["application/msgpack", "application/octet-stream"])
def test_other_bodies_that_are_wrong(kind):
    assert answered(CARTPOLE, "POST", "/act", b"\xc1" * 7, content_type=kind).status in (400, 422)
    assert answered(CARTPOLE, "POST", "/act", b"", content_type=kind).status in (400, 422)
    array = {"$array": ["float32", [4], b"123"]}
    packed = msgspec.msgpack.encode({"observation": array})
    assert answered(CARTPOLE, "POST", "/act", packed, content_type="application/msgpack").status == 422


@pytest.mark.parametrize("dtype", ["f4,,", "(,f4", "O", "V16", "datetime64", "f4[4]", ["f4"], 4, None])
def test_a_dtype_of_messagepack_is_one_of_a_table(dtype):
    packed = msgspec.msgpack.encode({"observation": {"$array": [dtype, [4], bytes(16)]}})
    answer = answered(CARTPOLE, "POST", "/act", packed, content_type="application/msgpack")
    assert answer.status == 422 and "an array of MessagePack is" in answer.json()["error"]
    for known in ("float32", "<f4", "f4", "float64", "int8"):
        array = np.zeros(4, known)
        packed = msgspec.msgpack.encode({"observation": {"$array": [known, [4], array.tobytes()]}})
        assert answered(CARTPOLE, "POST", "/act", packed, content_type="application/msgpack").status == 200


def test_other_paths_and_methods():
    assert answered(CARTPOLE, "GET", "/").status == 404
    assert answered(CARTPOLE, "GET", "/act").status == 405
    assert answered(CARTPOLE, "POST", "/health").status == 405


def test_with_a_token_only_health_is_open():
    settings = {"token": "secret"}
    for path, method in (("/act", "POST"), ("/spec", "GET"), ("/metrics", "GET"), ("/reload", "POST")):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
            answer = answered(CARTPOLE, method, path, {"observation": OBSERVATION}, settings=settings, **headers)
            assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
        right = {"authorization": "Bearer secret"}
        body = {"observation": OBSERVATION}
        assert answered(CARTPOLE, method, path, body, settings=settings, **right).status == 200
    assert answered(CARTPOLE, "GET", "/health", settings=settings).status == 200


def test_without_a_token_web_pages_get_no_answer():
    for address in ("POST /act", "POST /reload", "GET /spec", "GET /metrics", "GET /health"):
        method, path = address.split()
        body = {"observation": OBSERVATION}
        assert answered(CARTPOLE, method, path, body, host="evil.example").status == 421
        assert answered(CARTPOLE, method, path, body, origin="http://evil.example").status == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        for path in ("/act", "/reload"):
            answer = answered(CARTPOLE, "POST", path, {"observation": OBSERVATION}, content_type=kind)
            assert answer.status == 415 and "needs the header Content-Type: application/json" in answer.json()["error"]


def test_ten_thousand_requests_at_once_are_all_answered():
    async def scenario(client):
        return await asyncio.gather(*(client.act({"observation": OBSERVATION}) for _ in range(10_000))), client.counts

    answers, counts = served(CARTPOLE, scenario, max_queue=500)
    refused = [answer for answer in answers if answer.status == 503]
    assert {answer.status for answer in answers} == {200, 503}
    assert len(answers) - len(refused) >= 500
    assert refused[0].headers["retry-after"] == "1" and "are waiting already" in refused[0].json()["error"]
    assert counts.of_all("requests_503") == len(refused) and counts.of_all("queue_length") == 0


def test_more_observations_than_the_queue_holds_are_refused():
    body = {"observations": [OBSERVATION] * 11}
    answer = answered(CARTPOLE, "POST", "/act", body, settings={"max_queue": 10})
    assert answer.status == 413 and "the queue holds 10" in answer.json()["error"]


def test_the_request_of_a_client_that_has_gone_is_dropped():
    async def scenario(client):
        asked = [client.act({"observation": OBSERVATION}, hangs_up=number % 2 == 1) for number in range(20)]
        return await asyncio.gather(*asked), client.counts

    answers, counts = served(CARTPOLE, scenario)
    assert [answer is None for answer in answers] == [False, True] * 10
    assert counts.of_all("dropped") == 10 and counts.of_all("actions") == 10


def test_a_slow_policy_leaves_the_event_loop_free(tmp_path, monkeypatch):
    monkeypatch.setattr("rllib.serving.model.QUICK_S", 0.0)

    async def scenario(client):
        assert not client.model.default.is_quick
        return await asyncio.gather(*(client.act({"observation": OBSERVATION}) for _ in range(300)))

    answers = served(write_version(tmp_path / "one", 1, 1), scenario)
    assert [answer.json()["action"] for answer in answers] == [1] * 300


def test_a_failing_pass_is_an_answer_too(monkeypatch):
    async def scenario(client):
        with monkeypatch.context() as patch:
            patch.setattr(client.model.policy, "compute_actions", lambda *given, **how: 1 / 0)
            failed = await asyncio.gather(*(client.act({"observation": OBSERVATION}) for _ in range(3)))
        return failed, await client.act({"observation": OBSERVATION})

    failed, right = served(CARTPOLE, scenario)
    assert [answer.status for answer in failed] == [500] * 3 and "its log" in failed[0].json()["error"]
    assert right.status == 200


def test_waiting_fills_batches():
    async def scenario(client):
        asked = [asyncio.ensure_future(client.act({"observation": OBSERVATION})) for _ in range(4)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert not any(one.done() for one in asked)
        asked += [asyncio.ensure_future(client.act({"observation": OBSERVATION})) for _ in range(4)]
        await asyncio.gather(*asked)
        return client.counts

    counts = served(CARTPOLE, scenario, max_batch=8, max_wait_us=60_000_000)
    assert counts.of_all("batches") == 1


# ---------------------------------------------------------------------- what policies read beside the observation


def test_a_memory_goes_with_the_client(tmp_path):
    path = saved(tmp_path / "lstm", "CartPole-v1", model=LSTM)
    player = rllib.load_policy(path).make_player()
    rows = np.random.default_rng(1).uniform(-0.4, 0.4, (6, 4)).astype(np.float32)

    async def scenario(client):
        spec = (await client("GET", "/spec")).json()
        assert spec["reads"] == ["observation", "state", "prev_action", "prev_reward"]
        assert spec["initial_state"] == [[0.0] * 4] * 4 and spec["example"]["state"] is None
        assert (await client.act(spec["example"])).status == 200
        assert "null with the first one" in (await client.act({"observation": rows[0].tolist()})).json()["error"]
        wrong = await client.act({"observation": rows[0].tolist(), "state": [[1.0]]})
        assert wrong.status == 422 and "[[4], [4], [4], [4]]" in wrong.json()["error"]
        state, before, actions = None, {}, []
        for step, row in enumerate(rows):
            answer = (await client.act({"observation": row.tolist(), "state": state, **before})).json()
            state, before = answer["state"], {"prev_action": answer["action"], "prev_reward": float(step)}
            actions.append(answer["action"])
            without = await client.act({"observation": row.tolist(), "state": state})
            assert without.status == 422 and "prev_action" in without.json()["error"]
        two = {"observations": rows[:2].tolist(), "states": [None, None]}
        assert len((await client.act(two)).json()["states"]) == 2
        return actions, state

    actions, state = served(path, scenario)
    assert actions == [player.act(row, None if step == 0 else float(step - 1)) for step, row in enumerate(rows)]
    assert any(np.any(part) for part in state)


_FIELDS = ActRequest.__struct_fields__


@pytest.mark.parametrize("name", [each for each in _FIELDS if f"{each}s" in _FIELDS and each != "observation"])
def test_a_field_goes_with_one_observation_or_with_several(name):
    """A field of the other number would be left out in silence."""
    value = 1.0 if name == "prev_reward" else "1"

    async def scenario(client):
        several, alone = {"observations": [OBSERVATION] * 2}, {"observation": OBSERVATION}
        refused = [await client.act({**several, name: value}), await client.act({**alone, f"{name}s": [value]})]
        return refused, await client.act({**several, name: None})

    refused, unread = served(CARTPOLE, scenario)
    for answer, given in zip(refused, (name, f"{name}s"), strict=True):
        assert answer.status == 422 and f"{given} does not go with observation" in answer.json()["error"]
    assert unread.status == 200


def test_what_the_policy_does_not_read_is_refused():
    given = [{"prev_action": 0}, {"prev_reward": 0.0}, {"action_mask": [1, 1]}, {"state": [[1.0]]}]

    async def scenario(client):
        alone = [await client.act({"observation": OBSERVATION, **each}) for each in given]
        of_several = {"observations": [OBSERVATION] * 2}
        several = [
            await client.act({**of_several, f"{name}s": [None, value]})
            for name, value in (("prev_action", 0), ("prev_reward", 1.0))
        ]
        several.append(await client.act({**of_several, "prev_actions": 0}))
        nothing = {"prev_actions": [None, None], "prev_rewards": None}
        return alone, several, await client.act({**of_several, **nothing})

    alone, several, unread = served(CARTPOLE, scenario)
    assert [answer.status for answer in (*alone, *several)] == [422] * 7
    names = "prev_action", "prev_reward", "prev_actions", "prev_rewards", "prev_actions"
    for answer, name in zip((*alone[:2], *several), names, strict=True):
        assert f"leave out {name}," in answer.json()["error"]
    assert unread.status == 200


def test_masks_come_beside_the_observation(tmp_path):
    path = saved(tmp_path / "masked", MaskedProbe, {"mask": "info"}, action_mask_from="info")

    async def scenario(client):
        example = (await client("GET", "/spec")).json()["example"]
        assert example["action_mask"] == [1, 1, 1]
        for legal in range(3):
            mask = [int(index == legal) for index in range(3)]
            answer = await client.act({"observation": [1.0, 0.0], "action_mask": mask, "explore": True})
            assert answer.json()["action"] == legal
        several = {"observations": [[1.0, 0.0]] * 2, "action_masks": [[0, 1, 0], [0, 0, 1]]}
        assert (await client.act(several)).json()["actions"] == [1, 2]
        assert "with masks in addition" in (await client.act({"observation": [1.0, 0.0]})).json()["error"]
        without = await client.act({"observation": [1.0, 0.0], "action_mask": [0] * 3})
        assert without.status == 422 and "no legal action" in without.json()["error"]

    served(path, scenario)


SPACES = {
    "dict": Dict(image=Box(0, 255, (2, 2), np.uint8), kind=Discrete(3, start=1)),
    "choices": MultiDiscrete([2, 3]),
    "choice": Discrete(5, start=-2),
    "picture": Box(0, 255, (2, 3), np.uint8),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_example_of_the_spec_is_answered(space, tmp_path):
    path = saved(tmp_path / "sampled", SampledEnv, {"space": space})

    async def scenario(client):
        spec = (await client("GET", "/spec")).json()
        answer = await client.act(spec["example"])
        assert answer.status == 200 and answer.json()["action"] in (0, 1)

    served(path, scenario)


@pytest.mark.parametrize("env", [StructuredProbe, BoundedAction])
def test_actions_are_in_the_environments_units(env, tmp_path):
    path = saved(tmp_path / "structured", env)
    expected = rllib.load_policy(path).compute_actions([np.ones(1, np.float32)] * 2, explore=False)
    answer = answered(path, "POST", "/act", {"observations": [[1.0]] * 2})
    if env is BoundedAction:
        assert answer.json()["actions"] == expected.tolist()
    else:
        first = answer.json()["actions"][0]
        assert first["jump"] == expected[0]["jump"] and first["arm"][0] == expected[0]["arm"][0].tolist()


# ---------------------------------------------------------------------- other versions


def test_reload_takes_up_the_newest_checkpoint(tmp_path):
    write_version(tmp_path / "checkpoint_000001", 1, 0)

    async def scenario(client):
        assert (await client("POST", "/reload")).json()["changed"] is False
        write_version(tmp_path / "checkpoint_000002", 2, 1)
        assert (await client.act({"observation": OBSERVATION})).json() == {"action": 0, "policy_version": 1}
        asked = [client.act({"observation": OBSERVATION}) for _ in range(50)]
        reloaded, *answers = await asyncio.gather(client("POST", "/reload"), *asked)
        assert reloaded.json()["changed"] and reloaded.json()["checkpoint"].endswith("checkpoint_000002")
        assert all(answer.json()["action"] == answer.json()["policy_version"] - 1 for answer in answers)
        assert (await client.act({"observation": OBSERVATION})).json() == {"action": 1, "policy_version": 2}
        assert (await client("GET", "/health")).json()["policy_version"] == 2
        write_version(tmp_path / "checkpoint_000002", 3, 0)  # of the same name
        assert (await client("POST", "/reload")).json()["policy_version"] == 3

    served(tmp_path, scenario)


def test_a_link_is_followed_anew_each_time(tmp_path):
    """Moving it releases a version, or rolls one back."""
    for version, action in ((1, 0), (2, 1)):
        write_version(tmp_path / f"v{version}", version, action)
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "v1")

    async def scenario(client):
        for version, changes in ((2, True), (2, False), (1, True)):
            link.unlink()
            link.symlink_to(tmp_path / f"v{version}")
            answer = (await client("POST", "/reload")).json()
            assert answer["changed"] is changes and answer["checkpoint"].endswith(f"/v{version}")
            assert (await client.act({"observation": OBSERVATION})).json()["policy_version"] == version
        link.unlink()
        answer = await client("POST", "/reload")
        assert answer.status == 409 and "no checkpoint" in answer.json()["error"]
        assert (await client.act({"observation": OBSERVATION})).json()["policy_version"] == 1

    served(link, scenario)


def test_a_link_that_leads_nowhere_for_long_is_said_once(tmp_path):
    """Not while it is being moved, though."""
    write_version(tmp_path / "v1", 1, 0)
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "v1")

    async def scenario(client):
        link.unlink()
        link.symlink_to(tmp_path / "v2")
        said = []
        for look in range(20):
            try:
                assert await client.app.take_up_newer() is False
            except CheckpointError as error:
                said.append((look, str(error)))
        ((look, message),) = said
        assert look > 2 and "no checkpoint" in message and "v2" in message
        assert client.counts.of_all("reload_errors") == 1
        assert (await client.act({"observation": OBSERVATION})).json()["policy_version"] == 1

    served(link, scenario)


def test_a_checkpoint_that_cannot_be_used_is_refused(tmp_path):
    write_version(tmp_path / "checkpoint_000001", 1, 0)
    other = saved(tmp_path / "other", "Acrobot-v1")

    async def scenario(client):
        broken = write_version(tmp_path / "checkpoint_000002", 2, 1)
        weights = broken / "policies" / "default_policy" / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4])
        for _ in range(2):
            answer = await client("POST", "/reload")
            assert answer.status == 409 and "as if cut off" in answer.json()["error"]
        assert await client.app.take_up_newer() is False  # it is not tried again by itself
        shutil.copytree(other, tmp_path / "checkpoint_000003")
        answer = await client("POST", "/reload")
        assert answer.status == 409 and "observation_space" in answer.json()["error"]
        assert (await client.act({"observation": OBSERVATION})).json() == {"action": 0, "policy_version": 1}
        assert client.counts.of_all("reload_errors") == 3

    served(tmp_path, scenario)


PYTHON = re.compile(r"algo\.|get_|\.environment\(|env\.|info\[|load_policy|make_player")


@pytest.mark.parametrize("form", [{}, "info", {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}])
def test_refused_requests_give_no_advice_for_python(form, tmp_path):
    """Their clients may be in any language."""
    path = of_form(tmp_path / "checkpoint", form)

    async def scenario(client):
        example = (await client("GET", "/spec")).json()["example"]
        state = [[0.5] * 4] * 4 if "state" in example else None
        changes = [
            {"observation": [1]}, {"observation": "x"}, {"observation": None}, {"action_mask": [1, 1, 1]},
            {"action_mask": None}, {"action_mask": [0, 0, 0]}, {"state": [[1.0]]}, {"state": state},
            {"prev_action": 1}, {"prev_action": 99, "state": state}, {"prev_reward": 0.5},
            {"prev_action": 1.5}, {"prev_action": -1}, {"prev_action": [1]},
        ]  # fmt: skip
        refused = [answer for change in changes if (answer := await client.act(example | change)).status != 200]
        lacking = [{k: v for k, v in example.items() if k != name} for name in example if name != "observation"]
        refused += [await client.act(body) for body in lacking]
        assert len(refused) > 4
        for answer in refused:
            assert answer.status == 422 and not PYTHON.search(answer.json()["error"]), answer.json()

    served(path, scenario)


@pytest.mark.parametrize(
    "observation, status",
    [
        ([9.0, 0, 0, 0], 200), ([0, 3e38, 0, 0], 200), ([0, 1e39, 0, 0], 422), ([1e39, 0, 0, 0], 422),
        ([0, 0, 0], 422), ([0, 0, 0, "1"], 422),
    ],
)  # fmt: skip
def test_bounds_of_a_box_are_not_minded_and_infinity_is(observation, status):
    """As for clients of a run; the second dimension has no bounds."""
    body = {"observation": observation}
    assert answered(CARTPOLE, "POST", "/act", body).status == status
    several = {"observations": [[0, 0, 0, 0], observation]}
    assert answered(CARTPOLE, "POST", "/act", several).status == status


OTHER_FORMS = [
    ({}, {"use_lstm": True, "lstm_cell_size": 4}),
    ({"use_lstm": True, "lstm_cell_size": 4}, {"use_lstm": True, "lstm_cell_size": 8}),
    ({"use_lstm": True, "lstm_cell_size": 4}, {}),
    ({"use_lstm": True, "lstm_cell_size": 4}, {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True}),
    ("info", {}),
    ({}, "info"),
]


def of_form(path: Path, form) -> Path:
    """A checkpoint of a policy with this model; "info": one with masks beside observations."""
    if form == "info":
        return saved(path, MaskedProbe, {"mask": "info"}, action_mask_from="info")
    return saved(path, MaskedProbe, {"mask": "info"}, model={"max_seq_len": 4, **form})


@pytest.mark.parametrize("first, second", OTHER_FORMS)
def test_a_checkpoint_whose_requests_have_another_form_is_refused(first, second, tmp_path):
    """The policy in use answers on, also as a candidate's companion."""
    of_form(tmp_path / "run" / "checkpoint_000001", first)

    async def scenario(client):
        example = (await client("GET", "/spec")).json()["example"]
        other = of_form(tmp_path / "run" / "checkpoint_000002", second)
        answer = await client("POST", "/reload")
        assert answer.status == 409 and "clients were promised" in answer.json()["error"]
        assert (await client.act(example)).status == 200
        candidate = Candidate(other, client.app._model, False)
        await candidate.look(lambda served: pytest.fail("it would act"))
        assert candidate.served is None

    served(tmp_path / "run", scenario)


def test_metrics_are_those_of_prometheus():
    async def scenario(client):
        await asyncio.gather(*(client.act({"observation": OBSERVATION}) for _ in range(5)))
        await client.act(b"")
        return (await client("GET", "/metrics")).body.decode()

    text = served(CARTPOLE, scenario)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['rllib_serve_requests_total{code="200"}'] == "5"
    assert lines['rllib_serve_requests_total{code="400"}'] == "1"
    assert lines['rllib_serve_batch_size_bucket{le="4"}'] == "0"
    assert lines['rllib_serve_batch_size_bucket{le="8"}'] == "1" == lines["rllib_serve_batch_size_count"]
    assert float(lines["rllib_serve_batch_size_sum"]) == 5 and lines["rllib_serve_queue_length"] == "0"
    assert lines['rllib_serve_latency_seconds_bucket{le="+Inf"}'] == "6"
    assert lines['rllib_serve_policy_version{worker="0"}'] == "3"
    families = {re.sub("_(bucket|sum|count)$", "", name.partition("{")[0]) for name in lines}
    assert families == set(re.findall("^# TYPE ([a-z_]+) ", text, re.MULTILINE))


def test_counters_keep_all_their_digits():
    """A rate is a difference of two of them, however many requests there have been."""
    counts = Counts(Counts.new(2).descriptor, 2, 0)
    for name, number in (("requests_200", 123_456_789), ("latency_sum", 1_234_567.125), ("queue_length", 1_234_567)):
        counts.set(name, number)
    text = counts.text()
    assert 'rllib_serve_requests_total{code="200"} 123456789\n' in text
    assert "rllib_serve_latency_seconds_sum 1234567.125" in text and "rllib_serve_queue_length 1234567\n" in text


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of two agents whose observations have different sizes."""
    config = PPOConfig().environment(NameTheSignal, env_config={"sizes": (2, 3)}).multi_agent(policies="own")
    config.training(model={"fcnet_hiddens": [4]}).rollouts(num_rollout_workers=0).debugging(seed=1)
    with config.build() as algo:
        return algo.save(tmp_path_factory.mktemp("agents") / "run" / "checkpoint_000001")


class TestSeveralPolicies:
    """Several policies of one checkpoint."""

    def test_each_is_asked_by_its_id(self, checkpoint):
        async def scenario(client):
            answers = {}
            for policy_id in ("first", "second"):
                example = (await client("GET", f"/spec/{policy_id}")).json()["example"]
                answer = await client("POST", f"/act/{policy_id}", example, content_type="application/json")
                answers[policy_id] = example["observation"], answer.json()["action"]
            return answers, (await client("GET", "/policies")).json()["policies"], client.counts.of_all("queue_length")

        answers, ids, waiting = served(checkpoint, scenario)
        assert ids == ["first", "second"] and waiting == 0
        for policy_id, (observation, action) in answers.items():
            policy = rllib.load_policy(checkpoint, policy_id)
            assert policy.compute_single_action(observation, explore=False) == action

    @pytest.mark.parametrize(
        ("path", "message"),
        [("/act/thrid", "there is no policy 'thrid'; there are first, second."),
         ("/act/secnd", "Did you mean 'second'?"),
         ("/act", "several policies are served: ask /act/ID, where ID is one of first, second"),
         ("/nothing", "there is no /nothing; there are /act/ID, /spec/ID, /spaces/ID, /policies, ")],
    )  # fmt: skip
    def test_an_unknown_id_is_answered_with_the_ids(self, checkpoint, path, message):
        answer = answered(checkpoint, "POST", path, {"observation": 0}, content_type="application/json")
        assert answer.status == 404 and message in answer.json()["error"]

    def test_one_can_be_served_alone(self, checkpoint):
        async def scenario(client):
            paths = "/spec", "/spec/first", "/spec/second"
            return [(await client("GET", path)).status for path in paths]

        assert served(checkpoint, scenario, policy_id="first") == [200, 200, 404]

    def test_all_are_taken_up_together_or_none(self, checkpoint):
        async def scenario(client):
            tree = read_checkpoint(checkpoint, load_user_code=True)
            tree["algorithm.json"]["metrics"]["counters"]["num_updates"] = 7
            for policy_id in ("first", "second"):
                tree[f"policies/{policy_id}/policy.json"]["trained"]["num_updates"] = 7
            write_checkpoint(checkpoint.with_name("checkpoint_000002"), tree)
            changed = await client("POST", "/reload")
            tree = {name: part for name, part in tree.items() if "second" not in name}
            write_checkpoint(checkpoint.with_name("checkpoint_000003"), tree)
            refused = await client("POST", "/reload")
            return changed.json(), refused, [each.policy.policy_version for each in client.model.served.values()]

        changed, refused, versions = served(checkpoint.parent, scenario)
        assert changed["changed"] and changed["policy_version"] == 7 and versions == [7, 7]
        assert (
            refused.status == 409
            and "has no policy 'second'; it has first. The policy in use" in refused.json()["error"]
        )
