# Everything is installed in .venv beside this file; a package host is whatever pip is configured for.
PYTHON ?= python3
JOBS ?= $(shell nproc)

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
STAMPS := .venv/.torchneuron
BUILD := build/dev

.PHONY: build demo test bench lint format clean

# The extension in torchneuron/, the package installed from this folder. Nothing is touched when all is up to date.
build: $(STAMPS)/installed $(BUILD)/build.ninja
	@$(BIN)/cmake --build $(BUILD) -j $(JOBS)

$(BIN)/python:
	$(PYTHON) -m venv .venv

# What compiles the package: the [build-system] table of pyproject.toml and the tools that it would fetch by itself.
$(STAMPS)/tools: constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt torch scikit-build-core cmake ninja pyyaml
	@mkdir -p $(@D) && touch $@

$(STAMPS)/installed: pyproject.toml $(STAMPS)/tools
	$(PIP) install -q -c constraints.txt --no-build-isolation -e .
	@touch $@

$(BUILD)/build.ninja: | $(STAMPS)/tools
	CXX="$(CXX)" $(BIN)/cmake -S . -B $(BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DTORCHNEURON_IN_PLACE=ON

# Extras of the package: `make demo` needs .venv/.torchneuron/demo, `make test` .venv/.torchneuron/test.
$(STAMPS)/%: $(STAMPS)/installed
	$(PIP) install -q -c constraints.txt --no-build-isolation -e ".[$*]"
	@touch $@
