# Everything a person runs. `make help` lists it.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
# To skip CUDA on a laptop. The lock does not have the hash of this build of torch:
# make demo TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
TORCH_INDEX_URL ?=
# The database of known vulnerabilities for `make audit`, and whether the audit passes where it cannot be asked.
OSV ?= https://api.osv.dev
PASS_UNAUDITED ?= false
SBOM ?= report/sbom.cdx.json
PYTEST_ARGS ?=
# For two cores: tests that wait for other processes leave theirs idle. Tests that share a control plane, a Ray cluster or
# a file run on the same worker.
PARALLEL ?= -n 3
BENCHMARK_ARGS ?= --quick
SCALE_ARGS ?=
LOCK_ARGS ?=

NOT_INSTALLED := echo "Packages could not be installed; the lines above say why. Without a way to PyPI, name a mirror: PIP_INDEX_URL=https://HOST/simple make install"; exit 1
# uv installs in seconds what takes pip minutes. It uses pip's mirror, and shows its progress on a terminal.
UV := UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null)}}" $(BIN)/uv
UV_INSTALL := $(UV) pip install $(if $(MAKE_TERMOUT),,--quiet) --python $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help install demo demo-kubernetes demo-emulated cluster e2e e2e-kuberay e2e-dra e2e-network-policies e2e-gitops e2e-upgrade scale cluster-down down test test-fast lint format docs release-dry-run benchmarks lock audit sbom crds schema clean

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# Every package but `partita`, which is here, must have a hash in constraints.txt. As wheels they run no code when installed.
$(VENV)/.installed: pyproject.toml devtools/pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "No Python '$(PYTHON)' here; install Python 3.11, or: make PYTHON=/path/to/python3.11"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Partita needs Python 3.11; try: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing into $(VENV): 4 GB of packages, Ray and torch among them"
	@"$(PYTHON)" -m venv $(VENV) || { echo "No venv module; on Debian: apt-get install python3-venv"; exit 1; }
	@{ sed -n '/^uv==/,/[^\\]$$/p' constraints.txt > $(VENV)/uv.txt \
	&& $(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: --requirement $(VENV)/uv.txt \
	$(if $(TORCH_INDEX_URL),&& $(UV_INSTALL) --no-deps --default-index $(TORCH_INDEX_URL) $$(grep -o '^torch==[0-9.]*' constraints.txt)) \
	&& echo partita | $(UV_INSTALL) --require-hashes --only-binary :all: --constraint constraints.txt \
		--requirement pyproject.toml --extra dev --requirement devtools/pyproject.toml --excludes /dev/stdin \
	&& $(UV_INSTALL) --no-deps --no-build-isolation --editable . --editable devtools; } || { $(NOT_INSTALLED); }
	@touch $@

install: $(VENV)/.installed  ## Make the virtual environment

demo: install  ## Serve examples/ocr, which reads text, end to end on this machine: API server, Ray, operator, load, report
	$(BIN)/partita demo --example examples/ocr --report report/ocr

demo-kubernetes: install  ## The same, always with Kubernetes, which is downloaded or built the first time (5 to 10 minutes)
	$(BIN)/partita demo --example examples/ocr --report report/ocr --api-server kubernetes

demo-emulated: install  ## The same with 16 emulated GPUs of two classes at 200 requests (800 model runs) a second
	$(BIN)/partita demo --example examples/traffic-emulated --report report/traffic-emulated

cluster: install  ## Four real Kubernetes nodes on this machine (root, Debian 12), with the images and the chart
	$(BIN)/partita dev nodes up
	$(BIN)/partita dev nodes image partita.dev/partita:dev --build-arg EXTRAS=operator,serving,load
	$(BIN)/partita dev nodes image partita.dev/e2e:dev --context tests --file tests/cluster/Dockerfile
	$(BIN)/python -m tests.cluster.installation

e2e: install  ## The whole path on those nodes: chart, profiling, Ray in pods, KubeRay, pod templates, upgrade, removal
	$(BIN)/python -m pytest -m cluster $(addprefix tests/cluster/test_,path_on_nodes.py trial.py kuberay.py pod_templates.py) -rs $(PYTEST_ARGS)

e2e-kuberay: install  ## Upgrades and losses under KubeRay on those nodes; KUBERAY_OPERATOR is the path of its program
	$(BIN)/python -m pytest -m cluster $(addprefix tests/cluster/test_kuberay,.py _upgrade.py _failures.py) -rs -s $(PYTEST_ARGS)

e2e-dra: install  ## Sessions on devices of a DRA driver on those nodes; DRA_TEST_DRIVER is the path of Kubernetes' test driver
	$(BIN)/python -m pytest -m cluster tests/cluster/test_dra.py -rs -s $(PYTEST_ARGS)

e2e-network-policies: install  ## The chart's NetworkPolicies on those nodes; KUBE_ROUTER is the path of kube-router
	$(BIN)/python -m pytest -m cluster tests/cluster/test_network_policies.py -rs -s $(PYTEST_ARGS)

e2e-gitops: install  ## Argo CD's gitops-engine syncs examples/gitops; GITOPS_AGENT is the path of its agent, KSTATUS of kstatus
	$(BIN)/python -m pytest tests/operator/gitops -rs -s $(PYTEST_ARGS)

e2e-upgrade: install  ## Sessions serve while this version replaces an earlier one; PARTITA_UPGRADE_FROM is its commit or tag
	$(BIN)/python -m pytest -m slow tests/e2e/test_upgrade.py -rs -s $(PYTEST_ARGS)

scale: install  ## 500 sessions and 5000 nodes on one operator; KWOK is the path of KWOK, which plays the kubelets
	$(BIN)/python benchmarks/operator/operator_scale.py $(SCALE_ARGS)

cluster-down: install  ## Stop the nodes and all that ran on them
	$(BIN)/partita dev nodes down

down: install  ## Stop everything that demo started, and forget its objects
	$(BIN)/partita dev down --delete-data

# Tests and the demonstration start many processes. Without bytecode each would compile the packages again.
test test-fast demo demo-kubernetes demo-emulated: export PYTHONDONTWRITEBYTECODE =

test: install  ## Every test that this machine can run (what .ci/run calls)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(PYTEST_ARGS)

test-fast: install  ## Only the tests that need neither a control plane nor Ray
	$(BIN)/python -m pytest $(PARALLEL) -m "not (slow or apiserver or ray or e2e)" $(PYTEST_ARGS)

lint: install  ## Types, style and layers
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

format: install  ## Put the code in order
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

docs: install  ## The documentation as a site, to report/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release-dry-run: install  ## Build wheels, the operator's image and the chart, and publish them in a registry on this machine
	$(BIN)/partita dev release --dry-run --image operator

benchmarks: install  ## Every benchmark, quick and rough, to report/benchmarks (all of it: BENCHMARK_ARGS="--data DIR")
	$(BIN)/python benchmarks/all.py $(BENCHMARK_ARGS)

lock: install  ## Renew constraints.txt after a change of dependencies (newer versions: LOCK_ARGS=--upgrade)
	echo partita | $(UV) pip compile pyproject.toml devtools/pyproject.toml --excludes /dev/stdin --all-extras \
		--universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" --quiet --output-file constraints.txt $(LOCK_ARGS)

audit: install  ## Look for known vulnerabilities of all packages in the lock, by osv.dev
	@if curl --silent --output /dev/null --max-time 20 $(OSV); then \
		$(BIN)/pip-audit --strict --vulnerability-service osv --osv-url $(OSV)/v1/query --progress-spinner off \
			--disable-pip --no-deps --requirement constraints.txt; \
	else echo "NOT AUDITED: $(OSV) cannot be reached from here. Run make audit where it can." >&2; $(PASS_UNAUDITED); fi

sbom: install  ## All packages in the lock as CycloneDX, to report/sbom.cdx.json
	@mkdir -p $(dir $(SBOM))
	$(BIN)/python -W ignore -m cyclonedx_py requirements constraints.txt --pyproject pyproject.toml --output-reproducible --output-file $(SBOM)

crds: install  ## Regenerate the CRDs from the API models
	$(BIN)/partita crds --out crds --out charts/partita/crds

schema: install  ## Regenerate the schema of the chart's values from the operator's settings
	$(BIN)/partita operator settings --schema --merge-into charts/chart-only.schema.json > charts/partita/values.schema.json

clean: down  ## Remove the virtual environment and all state in this directory
	rm -rf $(VENV) .partita report
