# SPDX-License-Identifier: BSD-2-Clause
# A thin front to meson and ninja. `make help` lists what there is.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@meson setup $(BUILD) --prefix $(PREFIX)

help:
	@echo 'make          build into $(BUILD)/; the command is $(BUILD)/faultline'
	@echo 'make demo     install what is missing, build, and run two processes over the device'
	@echo 'make check    the same set-up, then all tests, also under sanitizers'
	@echo 'make bench    measure, print a table'
	@echo 'make interop  against the kernel'\''s soft RoCE, in a guest that is booted for it'
	@echo 'make asan     tests under the address and undefined-behaviour sanitizers only'
	@echo 'make tsan     tests under the thread sanitizer only'
	@echo 'make install  to PREFIX (now $(PREFIX)), under DESTDIR'
	@echo 'make clean    remove what was built'

setup:
	@sh scripts/setup.sh

# what the demo runs, without the tests and benches
demo: setup
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@ninja -C $(BUILD) faultline verbs/libibverbs.so.1 preload/libfaultline-preload.so examples/write_read
	@sh scripts/demo.sh $(BUILD)

check: setup
	@sh scripts/check.sh $(BUILD) asan tsan

asan: setup
	@sh scripts/check.sh asan

tsan: setup
	@sh scripts/check.sh tsan

bench: setup
	@$(MAKE) --no-print-directory all
	@meson test -C $(BUILD) --benchmark --verbose --num-processes 1

interop: setup
	@$(MAKE) --no-print-directory all
	@sh scripts/interop.sh $(BUILD) $(CASES)

install: $(BUILD)/build.ninja
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) installed
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-asan build-tsan

.PHONY: all help setup demo check asan tsan bench interop install clean
