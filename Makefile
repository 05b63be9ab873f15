.PHONY: demo test test-live search mutate check bench serve format

# Each of demo and test sets up all it needs, Debian packages included.
demo:
	@scripts/setup demo
	@.venv/bin/dovecote demo $(ARGS)

test:
	@scripts/setup test
	@scripts/lint
	.venv/bin/python -m pytest -n 2 $(ARGS)

# Real vLLM servers on the CPU behind the router; not part of `make test`.
test-live:
	@scripts/setup test
	.venv/bin/python -m pytest -m live -s tests/live $(ARGS)

# Properties and machines with 20 times the examples of `make test`: half an hour and more.
search:
	@scripts/setup test
	DOVECOTE_EXAMPLES_TIMES=20 .venv/bin/python -m pytest -n 2 --timeout 7200 \
	  $(or $(ARGS),tests/models tests/router/prompt tests/wire tests/prefix_index)

# Breaks the source in a scratch copy in the ways that matter; each must turn a test red.
mutate:
	@scripts/setup test
	scripts/mutate $(ARGS)

check:
	@scripts/setup test
	@scripts/lint

format:
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# What the simulator measures goes by hand, see docs/benchmarks.md. `make bench ARGS=--quick` is a try of two minutes.
bench:
	@scripts/setup test
	@for subject in index turn snapshot decision shadow proxy exact; do \
	  echo "benchmarks.$$subject"; .venv/bin/python -m benchmarks.$$subject --json $(ARGS) || exit 1; done
	.venv/bin/python -m benchmarks.tables

serve:
	@scripts/setup demo
	.venv/bin/dovecote serve --config $(or $(CONFIG),examples/fleet.yaml)
