# BS-Spec. `make` lists what there is; every target sets itself up on its first run.

PYTHON ?= python3
PY     := .venv/bin/python
export PATH := $(CURDIR)/.tools/verilator/bin:$(PATH)
export PYTHONUNBUFFERED := 1

# Options of the commands: CONFIG, OUT, LIB, GATING, LIMIT, JOBS, BENCH, SEED, WAVES,
# QUICK, SIM, FILES, SLOW, MODEL, PROMPT, TOKENS, DRAFT, GAMMA, TOP, NAME, FAMILY.
config := $(or $(CONFIG),small)
name   := $(basename $(notdir $(config)))
out    := $(or $(OUT),build/verilog/$(name))
files  := $(or $(FILES),tests/vectors/*.json)
on      = $(filter-out 0 no off,$($(1)))

.DEFAULT_GOAL := help
.PHONY: help setup demo decode cycles test sim vectors faults formal verilog header area fpga recipes variants bench verify lossless example lint types unit quick format clean distclean

help: ## list the targets (this)
	@echo "BS-Spec: make TARGET [OPTION=value ...]"
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "CONFIG is tiny, small, paper or the path of a .toml; the first run of any target sets up .venv/."

setup: ## make .venv/ and bring Verilator (other targets do it themselves)
	@$(PYTHON) -I .ci/setup.py

demo: setup ## the main job: real weights and prompts through the RTL (about 5 minutes)
	@$(PY) -m sim.demo

decode: setup ## [MODEL=smollm2 PROMPT=text TOKENS=n DRAFT=W6KV7 GAMMA=n CONFIG=c SEED=n QUICK=1]: a language model on the RTL
	@$(PY) -m sim.decode $(if $(CONFIG),--config "$(CONFIG)") $(if $(MODEL),--model "$(MODEL)") $(if $(PROMPT),--prompt "$(PROMPT)") $(if $(TOKENS),--tokens "$(TOKENS)") $(if $(DRAFT),--draft "$(DRAFT)") $(if $(GAMMA),--gamma "$(GAMMA)") $(if $(SEED),--seed "$(SEED)") $(if $(call on,QUICK),--quick)

test: setup ## lint, types, unit tests, a quick form of every bench, vector and proof
	@passed=0; failed=0; bad=; \
	for step in lint types unit quick lossless; do \
	  echo "== $$step"; \
	  if $(MAKE) --no-print-directory $$step; then passed=$$((passed + 1)); \
	  else failed=$$((failed + 1)); bad="$$bad $$step"; fi; \
	done; \
	if [ $$failed -gt 0 ]; then echo "make test: failed:$$bad (rerun one with: make STEP)"; fi; \
	echo "$$passed passed, $$failed failed"; \
	[ $$failed -eq 0 ]

sim: setup ## all benches, or BENCH=name [SEED=n QUICK=1 WAVES=1 CONFIG=c SIM=verilator|icarus]
	@$(PY) -m sim.run $(if $(BENCH),--bench "$(BENCH)") $(if $(SEED),--seed "$(SEED)") $(if $(call on,WAVES),--waves) $(if $(call on,QUICK),--quick) $(if $(CONFIG),--config "$(CONFIG)") $(if $(SIM),--sim "$(SIM)") $(if $(JOBS),--jobs "$(JOBS)")

vectors: setup ## FILES="a.json ...": vector files through both golden forms and the RTL
	@$(PY) -m sim.vectors $(files)

faults: setup ## plant deliberate faults one at a time; each must turn a bench red
	@$(PY) -m sim.faults

formal: setup ## proofs by k-induction, and broken copies that must fail [NAME=proof QUICK=1]
	@$(PY) -m sim.formal.run $(if $(NAME),--name "$(NAME)") $(if $(call on,QUICK),--quick)

verilog: setup ## CONFIG=c [TOP=chip] OUT=folder: plain Verilog, its config and port list
	@$(PY) -m hw.emit --config "$(config)" $(if $(TOP),--top "$(TOP)") --out "$(out)"

cycles: setup ## [CONFIG=c MODEL="a b" LENGTH=n ROWS=n DRAFT=W6KV6 OUT=x.json]: how long steps take (modelled)
	@$(PY) -m sim.step_times $(if $(CONFIG),--config $(CONFIG)) $(if $(MODEL),--model $(MODEL)) $(if $(LENGTH),--length "$(LENGTH)") $(if $(ROWS),--rows "$(ROWS)") $(if $(DRAFT),--draft "$(DRAFT)") $(if $(OUT),--json "$(OUT)")

header: setup ## build/bsspec.h: commands, registers and status codes for drivers in C
	@mkdir -p build && $(PY) -m model.formats.c_header > build/bsspec.h && echo build/bsspec.h

area: setup ## CONFIG=c [TOP=chip LIB=x.lib GATING=1 LIMIT=fo4]: what each component costs
	@$(PY) -m synth.area --config "$(config)" $(if $(filter chip,$(TOP)),--chip) $(if $(LIB),--lib "$(LIB)") $(if $(call on,GATING),--clock-gating) $(if $(LIMIT),--limit "$(LIMIT)") $(if $(JOBS),--jobs "$(JOBS)")

fpga: setup ## CONFIG=c [FAMILY=xilinx|ecp5]: what the chip takes of an FPGA
	@$(PY) -m synth.fpga --config "$(config)" $(if $(FAMILY),--family "$(FAMILY)") $(if $(JOBS),--jobs "$(JOBS)")

recipes: setup ## [LIB=x.lib]: the ways to map that area chooses from, side by side
	@$(PY) -m synth.compare $(if $(LIB),--lib "$(LIB)")

variants: setup ## [LIB=x.lib]: choices of the design beside what was not built
	@$(PY) -m synth.variants $(if $(LIB),--lib "$(LIB)")

bench: setup ## speed of products and of decoding beside torch's own, as ratios in one run
	@$(PY) -m model.cli bench

verify: setup ## [SEED=n OUT=folder]: speculative decoding is lossless, five levels, the whole (half an hour)
	@$(PY) -m model.cli verify $(if $(SEED),--seed "$(SEED)") $(if $(OUT),--out "$(OUT)")

lossless: setup ## its quick form, on a tiny model
	@$(PY) -m model.cli verify --quick

example: setup ## a product small enough to redo by hand, with every step
	@$(PY) -m model.datapath.example

lint: setup ## ruff: lint and format
	@$(PY) -m ruff check --quiet . && $(PY) -m ruff format --check --quiet . || { echo "make lint: see above; 'make format' repairs most"; exit 1; }

types: setup ## mypy
	@$(PY) -m mypy

unit: setup ## pytest on both cores [SLOW=1 for all of them]
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 $(if $(call on,SLOW),,-m "not slow")

quick: setup ## a quick form of the benches, vectors, faults and proofs, and a short decoding
	@$(PY) -m sim.run --quick
	@$(PY) -m sim.vectors --quick $(files)
	@$(PY) -m sim.faults --quick
	@$(PY) -m sim.formal.run --quick
	@$(PY) -m sim.decode --quick

format: setup ## let ruff repair layout and imports
	@$(PY) -m ruff check --quiet --fix . ; $(PY) -m ruff format .

clean: ## remove what the commands built
	@rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find hw model sim synth tests .ci -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## clean, and remove .venv/ and .tools/ too
	@rm -rf .venv .tools .tools.unfinished bsspec.egg-info
