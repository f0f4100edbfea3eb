# Everything is installed into .venv beside this file, from where pip is configured to look.
PYTHON ?= python3
JOBS ?= $(shell nproc)

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.torchneuron
ECOSYSTEM := .venv-ecosystem
BUILD := build/dev
INSTALL := -m pip --disable-pip-version-check install -q -c constraints.txt
CXX_FILES = $(shell find csrc -name '*.h' -o -name '*.cpp')

.PHONY: build demo test test-core test-ecosystem conformance bench lint format clean
.DELETE_ON_ERROR:

# Compiles what changed into torchneuron/; the package is installed as a path to this folder.
build: $(STAMPS)/package $(BUILD)/build.ninja
	@$(BIN)/cmake --build $(BUILD) -j $(JOBS)

# Trains the GPT and the convolutional net on `neuron` and `cpu`.
demo: build $(STAMPS)/demo
	$(BIN)/python examples/demo.py

test: test-core test-ecosystem

# On a machine that others use too, an OpenMP thread that spins at a barrier takes the core from the one it waits for.
test-core test-ecosystem: export OMP_WAIT_POLICY = passive

test-core: build $(STAMPS)/test $(STAMPS)/demo $(STAMPS)/conformance
	$(BIN)/python -m pytest -q --ignore=tests/ecosystem

# Hugging Face libraries and others, in an environment of their own beside the same build of the package.
test-ecosystem: build $(ECOSYSTEM)/.torchneuron
	$(ECOSYSTEM)/bin/python -m pytest -q tests/ecosystem

# PyTorch's own databases of operators, modules and optimisers, on `neuron` against `cpu`.
conformance: build $(STAMPS)/conformance
	$(BIN)/python -m torchneuron.testing.conformance --output conformance.json

bench: build $(STAMPS)/demo
	set -e; for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python $$file; done

lint: $(STAMPS)/lint $(STAMPS)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/mypy

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

clean:
	rm -rf build $(VENV) $(ECOSYSTEM) torchneuron/_C*.so*

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What compiles the package: the [build-system] table of pyproject.toml and the programs that it would fetch by itself.
$(STAMPS)/tools: constraints.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) torch scikit-build-core cmake ninja pyyaml
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/package: pyproject.toml $(STAMPS)/tools
	$(BIN)/python $(INSTALL) --no-build-isolation -e .
	@touch $@

$(STAMPS)/test $(STAMPS)/demo $(STAMPS)/conformance: $(STAMPS)/package
	$(BIN)/python $(INSTALL) --no-build-isolation -e ".[$(@F)]"
	@touch $@

$(STAMPS)/lint: constraints.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) ruff mypy clang-format types-PyYAML
	@mkdir -p $(STAMPS) && touch $@

$(BUILD)/build.ninja: | $(STAMPS)/tools
	CXX="$(CXX)" $(BIN)/cmake -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DTORCHNEURON_IN_PLACE=ON

$(ECOSYSTEM)/.torchneuron: tests/ecosystem/requirements.txt pyproject.toml constraints.txt
	test -x $(ECOSYSTEM)/bin/python || $(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python $(INSTALL) torch scikit-build-core -r tests/ecosystem/requirements.txt
	$(ECOSYSTEM)/bin/python $(INSTALL) --no-build-isolation -e ".[test]"
	@touch $@
