# Every target does all it needs from a fresh clone: Python >= 3.11, make and a package index are enough.
#   make train      installs what training needs, trains PPO on CartPole until it is solved, and says where the results are
#   make test       installs what the tests need, too; lint and the quick tests, at most four at a time; it ends with what was
#                   skipped, and why
#   make check      before a commit, in a minute: lint, layout, mypy, and the tests of what git says has changed
#   make oldest, newest    the quick tests with the oldest and the newest dependencies that the ranges admit
#   make one-process       what runs where the runtime does not: a training in this process, losses, networks, replays
#   make venv       what make test installs alone, so that parts of the tests can run
#   make faults     all tests of the runtime, with the longer ones, damage at random for all that reads files or requests, kills
#                   and cuts at each point of runs and requests, scripted episodes at random by all triples of doors, settings
#                   and algorithms (WITNESS_SEED=n repeats them), and 30 minutes of drawn runs (SEED=n: from that seed on)
#   make soak       ten minutes of mixed load on the runtime while its processes are killed, then 100 clients of a run that are
#                   killed while it is restarted and their connections are cut (SEED=n repeats both), and eight hours of
#                   runs on a clock that is set forward
#   make extras     the tests that need packages of other extras (MuJoCo, MiniGrid, EnvPool, W&B, ...); a skip is a failure
#   make learning   the tests that train for minutes, and the longer tests (MINUTES=60: those that docs/project/long_tests.csv
#                   does not list, for so long; it gets a line for each)
#   make ray        the tests on Ray clusters that they start, with the oldest and the newest supported Ray
#   make chaos      ten minutes of training on a Ray cluster of four nodes here, while workers and nodes are killed (SEED=n
#                   repeats it)
#   make peers      our losses, targets, statistics and decisions beside those of other libraries, on the same inputs; installs
#                   them first, some 5 GB (see benchmarks/peers/setup)
#   make engines    what make train trains, with two workers, on the engines zeromq and ray, side by side
#   make docs       the documentation site, in build/site, and an error where a link is broken
#   make types      mypy and basedpyright on README's Python and a user's script
#   make benchmark  our speed beside the limit and the peers (see benchmarks/)
#   make gpu        the tests that need a GPU, and updates on it beside eager torch, as a report in Markdown
#   make wheel      wheel and sdist in dist/, and a look at what they hold
#   make release-check   make wheel, and both installed in empty environments, where README's job runs (tools/release.py)
#   make release-extras  the wheel with each extra in an empty environment, and a line of what the extra is for (ONLY="plot tune":
#                   these alone)
#   make clean      removes what the others made, except results/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCHMARKS := actor_calls put_get actor_start learner_update sampling ppo_throughput sleeping_envs time_to_solve \
	course_exercise dqn_throughput impala_throughput es_throughput replay tune_overhead spilling custom_network \
	masked_throughput memory_throughput continuous_throughput vectorized_throughput pqn_throughput multi_agent_throughput \
	tensor_environments environment_processes external scale tune_scale serving as_ray

.PHONY: train test check oldest newest one-process venv extras faults soak learning ray chaos peers engines docs types benchmark gpu wheel release-check release-extras clean
.DELETE_ON_ERROR:

# Tests start hundreds of processes: without stored bytecode each compiles the library again, for half a second.
unexport PYTHONDONTWRITEBYTECODE

train: $(VENV)/trains
	@$(BIN)/rllib train -f tuned_examples/ppo/cartpole.yaml

test: $(VENV)/installed
	@$(BIN)/ruff check .
	@$(BIN)/python tools/stubs.py
	@$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal -r s \
		-m "not learning and not slow and not ray and not peers"

# Before a commit, in less than a minute: what most changes break. make test runs all of the quick tests.
check: $(VENV)/installed
	@$(BIN)/ruff check .
	@$(BIN)/python tools/stubs.py
	@$(BIN)/python -m pytest tests/stubs/test_type_checkers.py -k mypy
	@$(BIN)/python -m pytest -n logical --maxprocesses 4 -m "not learning and not slow and not ray and not peers" \
		tests/test_layout.py $$($(BIN)/python tools/changed_tests.py)

# In separate environments, without constraints.txt, which has what is tested every day.
oldest newest: %: .venv-%/installed
	@.venv-$@/bin/python -m pytest -n logical --maxprocesses 4 --dist worksteal -r s \
		-m "not learning and not slow and not ray and not peers"

.venv-oldest/installed .venv-newest/installed: .venv-%/installed: pyproject.toml tools/bounds.py
	@$(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python tools/bounds.py $* > .venv-$*/bounds.txt
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-$*/bounds.txt -e '.[test]'
	@touch $@

# What needs no process beside this one, and so runs where the runtime does not (macOS, Windows).
one-process: $(VENV)/trains
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pytest>=8' 'pytest-timeout>=2.3' 'hypothesis>=6'
	@$(BIN)/rllib train PPO CartPole-v1 num_rollout_workers=0 --stop iterations=3 --results-dir build/one-process
	@$(BIN)/python -m pytest tests/losses tests/models tests/replay tests/test_schedules.py -m "not learning and not slow"

venv: $(VENV)/installed

# jax, array-api-compat, ipykernel and nbclient belong to no extra: tests of adapters and of notebooks use them.
EXTRAS := .[test,box2d,clearml,comet,dm-control,envpool,hub,joblib,minatar,minigrid,mlflow,mujoco,openspiel,robotics,trackio,wandb]

# Suites of environments whose packages do not share one environment: each has one that sees .venv's packages behind its own.
SUITES := gymnax craftax pgx jumanji navix brax playground vmas lbforaging rware mjlab

extras: .venv-extras/installed $(SUITES:%=.venv-suites/%/installed)
	@.venv-extras/bin/python -m pytest -n logical --maxprocesses 4 -m "extras and not learning and not ray and not peers" \
		--ignore tests/env/suites/packages --need-extras
	@for name in $(SUITES); do \
		.venv-suites/$$name/bin/python -m pytest -n 0 --timeout 1200 --need-extras tests/env/suites/packages/test_$$name.py || exit 1; \
	done

.venv-extras/installed: pyproject.toml constraints.txt
	@echo "Installing into .venv-extras: some 4 GB, several minutes the first time ..."
	@$(PYTHON) -m venv .venv-extras
	@.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(grep '^torch==' constraints.txt)" -e '$(EXTRAS)' jax array-api-compat ipykernel nbclient pymunk
	@touch $@

.venv-suites/%/installed: $(VENV)/installed
	@echo "Installing $* into .venv-suites/$* ..."
	@$(PYTHON) -m venv .venv-suites/$*
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$(.venv-suites/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	@.venv-suites/$*/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

# Files named test_damaged_* change what others may have written: files, requests, queries; those named test_wire_* write
# requests as other languages do, and cut connections; the restart witness kills runs at each change of a file.
faults: $(VENV)/installed
	@$(BIN)/python -m pytest -m "not ray" tests/runtime $(wildcard tests/test_damaged_*.py tests/*/test_damaged_*.py) \
		$(wildcard tests/*/test_wire_*.py) tests/runs/test_restart_witness.py tests/env/test_external_soak.py \
		tests/witness/triples.py --timeout 600
	@$(BIN)/python -m tests.generated --minutes 30 $(if $(SEED),--first $(SEED))

soak: $(VENV)/installed
	@$(BIN)/python tests/runtime/soak.py $(if $(SEED),--seed $(SEED))
	@$(BIN)/python tests/env/external_soak.py $(if $(SEED),--seed $(SEED))
	@$(BIN)/python tests/runs/long_run.py

learning: $(VENV)/installed
	@$(BIN)/python -m pytest -m "(learning or slow) and not ray and not peers" --timeout 3600 \
		$(if $(MINUTES),-p tests.sittings --list docs/project/long_tests.csv --minutes $(MINUTES))

RAYS := 2.40.0 2.60.0
RAY_VENVS := $(RAYS:%=.venv-ray-%/installed)
# With the grpcio of 2026 the servers of this Ray's client do not start.
WITH_RAY_2.40.0 := grpcio==1.68.1

# In one process beside pytest, which is replaced when Ray's own code has ended it: that test fails, and the others run.
ray: $(RAY_VENVS)
	@results=""; for version in $(RAYS); do \
		echo "Ray $$version:"; \
		timeout --foreground --kill-after 30 3600 .venv-ray-$$version/bin/python -m pytest -m ray -n 1 --timeout 300 \
			tests/runtime tests/cluster && result=passed || result="failed (exit status $$?)"; \
		results="$$results\nRay $$version: $$result"; \
	done; printf "$$results\n"; case "$$results" in *failed*) exit 1;; esac

$(RAY_VENVS): .venv-ray-%/installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-ray-$*
	@.venv-ray-$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(grep '^torch==' constraints.txt)" -e '.[test]' 'ray[default]==$*' $(WITH_RAY_$*)
	@touch $@

# The curves take some half an hour of a core; they are marked learning: pytest -s tests/peers/test_learning.py
peers: $(VENV)/installed
	@benchmarks/peers/setup sb3 d3rlpy ray rlax
	@$(BIN)/python -m pytest -m "peers and not learning" tests/peers

chaos: $(lastword $(RAY_VENVS))
	@$(dir $<)bin/python tests/cluster/chaos.py $(if $(SEED),--seed $(SEED))

engines: $(lastword $(RAY_VENVS))
	@$(dir $<)bin/python benchmarks/engine_throughput.py

docs: $(VENV)/installed
	@$(BIN)/python docs/site/build.py build/site

# Not part of the tests' environment: basedpyright brings 280 MB of node.
types: $(VENV)/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,types]'
	@$(BIN)/python tools/stubs.py
	@$(BIN)/python -m pytest tests/stubs

benchmark: $(VENV)/installed
	@for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

# On a machine with a GPU, install a torch for it into .venv first: the pinned one may be that for CPUs.
gpu: $(VENV)/installed
	@$(BIN)/python benchmarks/gpu.py

# A virtual environment for make train, with pip's progress, since it may take minutes. torch is named so that the pinned
# release is taken, not the newest that the range admits.
$(VENV)/trains: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + \
		". Say which: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	@echo "Installing rllib into $(VENV): half a minute the first time, most of it torch ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt \
		"$$(grep '^torch==' constraints.txt)" -e '.[plot]'
	@touch $@

# The same one with all that the tests need. It follows, so that neither undoes what the other has installed.
$(VENV)/installed: $(VENV)/trains
	@echo "Installing what the tests need into $(VENV): about a minute the first time ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(grep '^torch==' constraints.txt)" -e '.[test]'
	@touch $@

wheel: $(VENV)/installed
	@$(BIN)/python tools/release.py build

release-check: $(VENV)/installed
	@$(BIN)/python tools/release.py check

release-extras: $(VENV)/installed
	@$(BIN)/python tools/release_extras.py $(ONLY)

clean:
	rm -rf $(VENV) .venv-extras .venv-suites .venv-oldest .venv-newest .venv-ray-* build dist .pytest_cache .ruff_cache .hypothesis
	find rllib runtime tests -name __pycache__ -type d -prune -exec rm -rf {} +
