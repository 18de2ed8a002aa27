# make deps       install what is missing from Debian 12 (DEV=1: also for format and tidy)
# make build      the program, build/tessera, and the library; installs what is missing first, as run and test do
# make run        build, then let the bundled model write (PROMPT="…": your own beginning)
# make test       build everything and run all tests; the last line is "N passed, N failed"
# make install    into PREFIX (default /usr/local; DESTDIR is heeded)
# make format     format the sources (CHECK=1: only say what is not formatted)
# make tidy       clang-tidy over the sources
# make asan       all tests under AddressSanitizer and UndefinedBehaviorSanitizer
# make tsan       all tests under ThreadSanitizer
# make clean      remove the build folders
PREFIX ?= /usr/local

.PHONY: deps build run test install format tidy asan tsan clean help
.DEFAULT_GOAL := build

help:
	@sed -n 's/^# //p' Makefile

deps:
	tools/install_deps.sh $(if $(DEV),dev)

build: deps
	cmake --preset release -DTESSERA_BUILD_TESTS=OFF
	cmake --build --preset release

run: build
	tools/run_demo.sh $(if $(PROMPT),"$(PROMPT)")

test: deps
	cmake --preset release -DTESSERA_BUILD_TESTS=ON
	cmake --build --preset release
	tools/run_tests.py build

install: build
	cmake --install build --prefix "$(PREFIX)"

format:
	tools/format.sh $(if $(CHECK),--check)

tidy:
	cmake --preset tidy
	tools/tidy.sh

asan tsan: deps
	cmake --preset $@
	cmake --build --preset $@
	tools/run_tests.py build-$@

clean:
	rm -rf build build-debug build-asan build-tsan build-tidy
