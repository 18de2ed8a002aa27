# make deps       list the missing packages of Debian 12, then install them (DEV=1: also those for format and tidy)
# make build-deps install only what building needs, without the packages for tests
# make build      build the program, build/tessera, and the libraries
# make run        build the program, then demonstrate it with the bundled model (PROMPT="…": how its story begins)
# make check      build everything and run the fast tests without their slow cases; takes a minute on two cores after a
#                 change of one .cpp
# make test       build everything and run all tests; the last line is "N passed, N failed"
# make build-cuda build the program and, if nvcc is installed, the CUDA backend libtessera_cuda.so (make build
#                 builds both too)
# make test-cuda  build everything and run the GPU tests: conformance, operators, goldens, verify (DEVICE=cuda:1: on
#                 another GPU)
# make dist       write build/tessera-VERSION.tar.xz, which runs on another Linux without installing anything
# make dist-tests write build/tessera-tests.tar.xz, whose tools/test_cuda.sh runs the GPU tests on another computer:
#                 tools/test_cuda.sh bin
# make wheel      write build/tessera_engine-VERSION-….whl: the program, libtessera.so and a Python package
#                 (docs/python.md); if nvcc is installed, tessera_engine_cuda-VERSION-….whl too
# make deb        write build/tessera_VERSION_amd64.deb for Debian 12: the program, a service, a small model
# make install    build, then install into PREFIX (default /usr/local), below DESTDIR if it is set
# make format     format the sources (CHECK=1: only list the sources that are not formatted)
# make tidy       run clang-tidy over the sources (CHANGED=REVISION: only over those changed since)
# make asan       run all tests under AddressSanitizer and UndefinedBehaviorSanitizer
# make asan-parsers  run the tests of code that reads files and requests, with the same sanitizers; takes minutes to
#                 build
# make tsan       run all tests under ThreadSanitizer
# make fuzz       run every parser on mutated input, for FUZZ_SECONDS (600) in all; fails if it finds a fault
#                 (fuzz/README.md)
# make clean      remove the build folders
#
# Every target that builds something first installs the packages that it needs. With DEPS=skip it installs nothing, and
# the build reports what is missing.
# With GRAMMAR=ON a build fails if the sources of constrained output cannot be fetched.
# CUDA=OFF builds without the CUDA backend even if nvcc is installed. The build folder keeps this until CUDA=AUTO.
# CUDA_ARCHS="90a" builds the backend only for GPUs of this architecture. This takes a third of the time of all
# architectures (80;89;90a).
# CUDA_OPTIMISE=OFF compiles kernels in half the time (nvcc 13) but makes them slow: for machines without a GPU, which
# only check that they compile (continuous integration). The build folder keeps this until CUDA_OPTIMISE=ON. The targets
# dist, dist-tests, wheel, deb, install and test-cuda always optimise kernels.
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 600
VERSION = $(shell sed -n 's/^project.tessera VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

.PHONY: deps build-deps build build-cuda run check test test-cuda dist dist-tests wheel deb install format tidy asan asan-parsers tsan fuzz clean help
.DEFAULT_GOAL := build

export DEPS
cuda = $(if $(CUDA),-DTESSERA_CUDA=$(CUDA)) $(if $(CUDA_ARCHS),"-DTESSERA_CUDA_ARCHITECTURES=$(CUDA_ARCHS)") \
  $(if $(CUDA_OPTIMISE),-DTESSERA_CUDA_OPTIMISE=$(CUDA_OPTIMISE))
# What is shipped, installed or tested on a GPU has optimised kernels, whatever the build folder kept.
dist dist-tests wheel deb install test-cuda: CUDA_OPTIMISE = ON
configure = cmake --preset release $(cuda) $(if $(GRAMMAR),-DTESSERA_GRAMMAR=$(GRAMMAR))

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

deps:
	tools/install_deps.sh $(if $(DEV),dev)

build-deps:
	tools/install_deps.sh build

build: build-deps
	$(configure) -DTESSERA_BUILD_TESTS=OFF
	cmake --build --preset release

run: build-deps
	$(configure) -DTESSERA_BUILD_TESTS=OFF
	cmake --build --preset release --target tessera
	tools/run_demo.sh $(if $(PROMPT),"$(PROMPT)")

check test: deps
	$(configure) -DTESSERA_BUILD_TESTS=ON
	cmake --build --preset release
	tools/run_tests.py $(if $(CI),--known-skips tests/known_skips.txt) $(if $(CI)$(filter check,$@),--slow-cases tests/slow_cases.txt) \
		$(if $(filter check,$@),--quick) build $(if $(filter check,$@),-L "^fast$$")

build-cuda: deps
	$(configure)
	cmake --build --preset release --target tessera tessera_cuda

test-cuda:
	@tools/test_cuda.sh --look
	@$(MAKE) --no-print-directory deps
	$(configure) -DTESSERA_BUILD_TESTS=ON -DTESSERA_CUDA=ON
	cmake --build --preset release
	tools/test_cuda.sh build

dist: build
	tools/pack.py program build build/tessera-$(VERSION).tar.xz

deb: build
	tools/make_deb.sh build build

wheel: build
	tools/make_wheel.py build build

dist-tests: deps
	$(configure) -DTESSERA_BUILD_TESTS=ON
	cmake --build --preset release
	tools/pack.py tests build build/tessera-tests.tar.xz

install: build
	cmake --install build --prefix "$(PREFIX)"

format:
	tools/format.sh $(if $(CHECK),--check)

tidy:
	cmake --preset tidy
	tools/tidy.sh $(if $(CHANGED),--changed "$(CHANGED)")

asan tsan: deps
	cmake --preset $@ $(cuda)
	cmake --build --preset $@
	tools/run_tests.py build-$@

asan-parsers:
	tools/install_deps.sh dev
	cmake --preset $@
	cmake --build --preset $@
	tools/run_tests.py build-parsers -R '^(base|text|model|server_parsers)_test$$'

fuzz:
	tools/install_deps.sh fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz
	tools/run_fuzz.sh build-fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build build-debug build-asan build-parsers build-tsan build-fuzz build-tidy
