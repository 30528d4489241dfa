# SPDX-License-Identifier: Apache-2.0
# HeteroShard. `make` builds; `make deps` installs the packages it needs, `make install` the
# program with manual pages, completion and a unit; `make deb`, `make dist`, `make wheel` make
# packages. `make test`, `make demo` and `make demo-mixed` install what they need, build and run.
# `make lib` builds the library for programs (include/heteroshard.h), `make install-lib` copies it.
# Also: `make lint`, `make bench`, `make fuzz`, `make fuzz-long`, `make test-long`.
#   PREFIX=/usr/local                 where `make install` puts bin/heteroshard (DESTDIR before it)
#   SAN=address,undefined | thread    sanitizer build, in its own folder
#   T=NAME                            only tests, or fuzz targets, whose name contains NAME
#   FUZZ_SECONDS=60                   for each fuzz target
#   DEBUG=1                           no optimisation
SHELL := /bin/bash
.DELETE_ON_ERROR:
.SECONDARY:
.SUFFIXES:

CC      ?= cc
PREFIX  ?= /usr/local
# where systemd looks for units
UNITS   ?= $(PREFIX)/lib/systemd/system
# where zsh looks for completion: the place of packages of Debian, and that of everybody else
ZSH     ?= $(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
comma   := ,
BUILD   := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(DEBUG),-debug)
DEPS_OK := $(BUILD)/.deps
# Optional: MPI, as pkg-config finds it (Open MPI or MPICH). MPI=0 leaves it out.
MPI_PKG := $(if $(filter 0,$(MPI)),,$(firstword \
	$(foreach p,mpi-c ompi-c mpich,$(shell pkg-config --exists $p && echo $p))))
# Optional: libedit, for the keys of a conversation (`generate`). EDIT=0 leaves it out.
EDIT_PKG := $(if $(filter 0,$(EDIT)),,$(shell pkg-config --exists libedit && echo libedit))

OPT     := $(if $(DEBUG),-O0,-O2) -g
CFLAGS  := -std=gnu11 $(OPT) -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wpointer-arith -Wvla -Werror=implicit-function-declaration -fopenmp -fno-math-errno \
           -fno-common -fstack-protector-strong -D_GNU_SOURCE \
           -ffile-prefix-map=$(CURDIR)=. $(EXTRA_CFLAGS)
CPPFLAGS := -Isrc -Iinclude -I$(BUILD)/gen
LDFLAGS := -fopenmp $(if $(filter Darwin,$(shell uname -s)),,-Wl$(comma)--as-needed)
LDLIBS  := -ldnnl -ljansson -lyaml -lpcre2-8 -lutf8proc -lcairo -lcgraph -lgvc -lssl -lcrypto \
           -lsodium -lcurl -lpng -lturbojpeg -lz -lzstd -lm -ldl -lpthread
ifneq ($(MPI_PKG),)
CPPFLAGS += -DHAVE_MPI $(shell pkg-config --cflags $(MPI_PKG))
LDLIBS  += $(shell pkg-config --libs $(MPI_PKG))
endif
ifneq ($(EDIT_PKG),)
$(BUILD)/cli/line_input.o: CPPFLAGS += -DHAVE_LIBEDIT $(shell pkg-config --cflags $(EDIT_PKG))
LDLIBS  += $(shell pkg-config --libs $(EDIT_PKG))
endif
ifneq ($(SAN),)
CFLAGS  += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined
LDFLAGS += -fsanitize=$(SAN)
endif

SRC     := $(filter-out src/cli/main.c,$(wildcard src/*/*.c))
OBJ     := $(SRC:src/%.c=$(BUILD)/%.o)
LIB     := $(BUILD)/libheteroshard.a
BIN     := $(BUILD)/heteroshard
TESTS   := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))

.PHONY: all deps install uninstall test run-tests demo demo-mixed lint format bench fuzz fuzz-long \
	docs clean
all: $(BIN)
	@echo "built $(BIN)$(if $(MPI_PKG), (with MPI: $(MPI_PKG)))$(if \
		$(EDIT_PKG), (with libedit))"

# Packages are installed by the goals that say so in their help, never by `make` alone.
INSTALLING := $(filter deps test demo demo-mixed,$(MAKECMDGOALS))
deps:
	@scripts/install-deps.sh
$(DEPS_OK): scripts/install-deps.sh
	@mkdir -p $(@D)
	@scripts/install-deps.sh $(if $(INSTALLING),,--check)
	@touch $@

# Everything is compiled anew when the flags change: by another CFLAGS, or because a library was
# installed since (MPI).
FLAGS := $(filter-out ccache,$(CC)) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(LDLIBS)
FLAGS_OK := $(BUILD)/.flags
.PHONY: flags
$(FLAGS_OK): export FLAGS_NOW = $(FLAGS)
$(FLAGS_OK): flags
	@mkdir -p $(@D)
	@printf '%s\n' "$$FLAGS_NOW" | cmp -s - $@ || printf '%s\n' "$$FLAGS_NOW" >$@

# Blocks of files are expanded bit for bit as the reference does it, so no product is fused with a
# sum; -O3 turns the loops into vectors.
$(BUILD)/file/%.o: CFLAGS += -ffp-contract=off $(if $(DEBUG)$(SAN),,-O3)

$(BUILD)/%.o: src/%.c $(FLAGS_OK) | $(DEPS_OK)
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@

# The CPU kernels (src/dev/cpu) are compiled once per instruction set; the backend picks one at
# run time.
CPU_ISAS         := base $(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),v3 v4 v4bf16)
CPU_ARCH_v3      := -march=x86-64-v3
CPU_ARCH_v4      := -march=x86-64-v4 -mprefer-vector-width=512
CPU_ARCH_v4bf16  := $(CPU_ARCH_v4) -mavx512bf16
CPU_SRC          := $(wildcard src/dev/cpu/*.c)
CPU_OBJ          := $(foreach isa,$(CPU_ISAS),$(patsubst src/%.c,$(BUILD)/%.$(isa).o,$(CPU_SRC)))
define CPU_RULE
$(BUILD)/dev/cpu/%.$(1).o: src/dev/cpu/%.c $(FLAGS_OK) | $(DEPS_OK)
	@mkdir -p $$(@D)
	@echo "  CC $$< ($(1))"
	@$$(CC) $$(CFLAGS) $(if $(DEBUG),,-O3) $$(CPU_ARCH_$(1)) -DCPU_ISA=$(1) $$(CPPFLAGS) \
		-MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(CPU_ISAS),$(eval $(call CPU_RULE,$(isa))))
OBJ += $(CPU_OBJ)

# The GPU kernels are written once and lie in the program as text; the machine that runs them
# compiles them.
KERNEL_TEXT := $(wildcard src/dev/kernel/*.k)
$(BUILD)/gen/dev/kernel_text.h: scripts/kernel-text.sh $(KERNEL_TEXT)
	@mkdir -p $(@D)
	@scripts/kernel-text.sh $(KERNEL_TEXT) >$@
$(BUILD)/dev/gpu.o: $(BUILD)/gen/dev/kernel_text.h

# The commit, for --version: of the clone, or as the file COMMIT of a source archive says.
.PHONY: commit
$(BUILD)/gen/cli/commit.h: commit
	@mkdir -p $(@D)
	@c=$$(git rev-parse --short=12 HEAD 2>/dev/null) && \
		{ git diff --quiet HEAD -- src Makefile 2>/dev/null || c="$$c with changes"; } || \
		c=$$(cat COMMIT 2>/dev/null); \
	printf '#define HS_COMMIT "%s"\n' "$$c" >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/cli/main.o: $(BUILD)/gen/cli/commit.h

$(LIB): $(OBJ)
	@rm -f $@
	@ar rcs $@ $^

# The shared library: the same objects. These use variables of other libraries, or of each thread,
# and must be compiled for it. EXTRA_CFLAGS=-fPIC where the compiler does not make
# position-independent programs by itself.
PIC     := base/os ops/ssh dev/opencl_lib dev/rt_queue dev/dev_cuda dev/cpu_text net/mpi_group \
	net/net_mpi cli/cli_streams model/source_random
$(PIC:%=$(BUILD)/%.o): CFLAGS += -fPIC
$(PIC:%=$(BUILD)/%.o): Makefile
SONAME  := libheteroshard.so.0
SHARED  := $(BUILD)/$(SONAME)
.PHONY: lib install-lib
lib: $(LIB) $(SHARED)
$(SHARED): $(OBJ) packaging/libheteroshard.map
	@echo "  LD $@"
	@$(CC) -shared -Wl,-soname,$(SONAME) -Wl,-Bsymbolic $(LDFLAGS) \
		-Wl,--version-script=packaging/libheteroshard.map \
		$(OBJ) $(LINK_FIRST) $(LDLIBS) -o $@

$(BIN): $(BUILD)/cli/main.o $(LIB)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) $^ $(LINK_FIRST) $(LDLIBS) -o $@

# A test is one program; helpers shared by tests lie in tests/support/. A test links those that it
# uses: it may define functions of its own in place of the library's. Tests write of a struct only
# what they are about.
SUPPORT := $(patsubst tests/support/%.c,$(BUILD)/tests/support/%.o,$(wildcard tests/support/*.c))
$(BUILD)/tests/%.o: tests/%.c $(FLAGS_OK) | $(DEPS_OK)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) -Wno-missing-field-initializers $(CPPFLAGS) -Itests -MMD -MP -c $< -o $@
$(BUILD)/tests/support.a: $(SUPPORT)
	@rm -f $@
	@ar rcs $@ $^
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/tests/support.a $(LIB)
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@

# The program as it was before the last change of the protocol, but for its number (hello.h).
OLDER := $(patsubst %,$(BUILD)/older/%.o,proto/hello coord/session_join worker/dial_in worker/serve)
$(BUILD)/older/%.o: src/%.c $(FLAGS_OK) | $(DEPS_OK)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $(CPPFLAGS) -DHELLO_AGE=1 -MMD -MP -c $< -o $@
$(BUILD)/heteroshard-older: $(BUILD)/cli/main.o $(OLDER) $(LIB)
	@$(CC) $(LDFLAGS) $^ $(LINK_FIRST) $(LDLIBS) -o $@

# Stand-ins for drivers, so that the mistakes of drivers can be tried. fake_opencl.so calls a
# real libOpenCL.
# fake_tiles_T-CARD.so: attention for a card with matrix units, and the macro of its compiler.
TILES := $(foreach c,sm_80 sm_90 gfx908 gfx90a gfx1100 gfx1200 intel8 intel16,1-$c 2-$c) 2-sm_75 \
	2-sm_70
DRIVERS := $(addprefix $(BUILD)/tests/drivers/,fake_opencl.so empty_opencl.so \
	fake_rt.so lacking_rt.so fake_kernels_0.so fake_kernels_1.so fake_kernels_2.so \
	$(TILES:%=fake_tiles_%.so))
# With which the stand-in compiles a text that is not the program's own.
FAKE_SOURCE := $(patsubst %,-I$(CURDIR)/%,src tests/drivers) \
	$(CURDIR)/tests/drivers/fake_kernels.c
$(BUILD)/tests/drivers/%_rt.so: tests/drivers/fake_rt.c tests/drivers/entry_sig.h \
		tests/drivers/fake_kernels.c $(wildcard tests/drivers/fake_*.h)
	@mkdir -p $(@D)
	@$(CC) $(filter-out -fsanitize%,$(CFLAGS)) -O3 $(CPPFLAGS) \
		-DFAKE_SOURCE='"$(FAKE_SOURCE)"' \
		$(if $(filter lacking%,$*),-DMISSING) -fvisibility=hidden -fPIC -shared \
		$< src/base/dtype.c -o $@ -lm -ldl
$(BUILD)/tests/drivers/fake_kernels_%.so: tests/drivers/fake_kernels.c $(KERNEL_TEXT)
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -O2 -w -fno-strict-aliasing $(CPPFLAGS) -DHS_T=$* -fPIC -shared \
		$< -o $@ -lm
$(BUILD)/tests/drivers/fake_tiles_%.so: tests/drivers/fake_kernels.c tests/drivers/fake_tiles.h \
		$(KERNEL_TEXT)
	@mkdir -p $(@D)
	@$(CC) -std=gnu11 -O3 -w -fno-strict-aliasing $(CPPFLAGS) -DFAKE_CARD \
		-DHS_T=$(word 1,$(subst -, ,$*)) \
		$(addprefix -D,$(patsubst sm_%,__CUDA_ARCH__=%0,$(patsubst gfx11%,__GFX11__, \
		$(patsubst intel%,HS_SUBGROUP=%, \
		$(patsubst gfx90%,__gfx90%__,$(patsubst gfx12%,__gfx12%__, \
		$(word 2,$(subst -, ,$*)))))))) -fPIC -shared $< -o $@ -lm
$(BUILD)/tests/drivers/%.so: tests/drivers/fake_opencl.c tests/drivers/fake_gates.h src/dev/cl.h
	@mkdir -p $(@D)
	@$(CC) $(filter-out -fsanitize%,$(CFLAGS)) $(CPPFLAGS) $(if $(filter fake%,$*),-DFAKE) \
		-fPIC -shared $< -o $@ \
		$(if $(filter fake%,$*),-Wl$(comma)--no-as-needed -l:libOpenCL.so.1 2>/dev/null || \
			echo "  (no libOpenCL: $@ is not built)")

# PoCL, OpenCL on the processor, is the OpenCL device of the tests; kernels and products are tested
# on the OpenCL driver of Mesa too, which has other limits. A libOpenCL that is installed already is
# kept. Without a driver the tests that need it are skipped, and say so.
LOADER := $(shell ldconfig -p | grep -q libOpenCL.so.1 || echo ocl-icd-libopencl1)
.PHONY: opencl mesa
opencl: | $(DEPS_OK)
	@scripts/install-deps.sh pocl-opencl-icd $(LOADER) || \
		echo "PoCL cannot be installed: there may be no OpenCL device here"
mesa: opencl
	@scripts/install-deps.sh mesa-opencl-icd || \
		echo "the OpenCL driver of Mesa cannot be installed: tests do not run on it"
$(DRIVERS): | opencl mesa

# MPI for the tests of the mpi transport. `make` is run again because it is found at the start.
.PHONY: mpi
mpi: | $(DEPS_OK)
ifneq ($(MPI),0)
	@need="$(if $(MPI_PKG),,libopenmpi-dev)"; \
	need="$$need $$(command -v mpirun >/dev/null || echo openmpi-bin)"; \
	[ "$$need" = " " ] || scripts/install-deps.sh $$need || \
		echo "MPI cannot be installed: its tests are skipped"
endif
# libedit for the test of a conversation; `make` is run again here too.
.PHONY: libedit
libedit: | $(DEPS_OK)
ifneq ($(EDIT),0)
	@$(if $(EDIT_PKG),:,scripts/install-deps.sh libedit-dev) || \
		echo "libedit cannot be installed: its test is skipped"
endif
# Network namespaces, address translation, sshd and WireGuard for the tests of invitations, `up` and
# `mesh`. Where systemd runs, installing sshd would start it: there the test is skipped unless it is
# installed.
.PHONY: netns
netns: | $(DEPS_OK)
	@need="$$(command -v ip >/dev/null || echo iproute2)"; \
	need="$$need $$(command -v nft >/dev/null || echo nftables)"; \
	need="$$need $$(command -v wg >/dev/null || echo wireguard-tools)"; \
	need="$$need $$(command -v wireguard-go >/dev/null || echo wireguard-go)"; \
	need="$$need $$(command -v ping >/dev/null || echo iputils-ping)"; \
	[ -x /usr/sbin/sshd ] || [ -d /run/systemd/system ] || need="$$need openssh-server"; \
	command -v ssh >/dev/null || need="$$need openssh-client"; \
	[ -z "$${need// }" ] || scripts/install-deps.sh $$need || \
		echo "network namespaces cannot be used: the tests of invitations are skipped"
# What the Python package stands on.
.PHONY: python
python: | $(DEPS_OK)
	@for p in python3 /usr/bin/python3; do \
		$$p -c 'import cffi, numpy' 2>/dev/null && exit 0; done; \
	scripts/install-deps.sh python3-cffi python3-numpy || \
		echo "cffi and numpy cannot be installed: the test of the Python package is skipped"
# As many jobs as cores, unless the caller says how many.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 2))
test: deps mpi libedit netns python
	@$(MAKE) --no-print-directory $(JOBS) run-tests
# The clang that makes code for every AMD card.
.PHONY: ziglang
ziglang: | $(DEPS_OK)
	@scripts/fetch-ziglang.sh >/dev/null || \
		echo "the kernels are not compiled for all AMD cards: clang cannot be had"
run-tests: $(BIN) $(BUILD)/heteroshard-older $(TESTS) $(DRIVERS) $(if $(SAN),,$(SHARED)) | ziglang
	@scripts/run-tests.sh $(BUILD) $(T)

# What takes minutes: figures that stand in docs/measurements.md, more mixtures, more kills.
LONG := test_attack_job test_reduce test_train_groups test_train_passes test_train_kill \
	test_train_stays test_train_stays_speed test_train_methods test_train_again \
	test_train_random
# Of these some need root, and the packages of `make dist wheel`.
LONG_SCRIPTS := test_chaos test_invite test_package test_up test_first_cluster test_mesh \
	test_mesh_inside test_mesh_invite test_mesh_roam long_mesh_hub test_mesh_doc \
	long_onednn3
.PHONY: test-long
test-long: $(BIN) $(BUILD)/heteroshard-older $(LONG:%=$(BUILD)/tests/%) \
		$(BUILD)/tests/test_dev_compile
	@export TEST_LONG=1 GOMP_SPINCOUNT=1000; \
	for t in $(LONG:%=$(BUILD)/tests/%) $(LONG_SCRIPTS:%=tests/%.sh); do $$t || exit 1; done
	@scripts/compile-all.sh $(BUILD)
	@scripts/compile-macos.sh $(BUILD)
	@scripts/fuzz-coverage.sh

# What belongs beside the program is made from its option rows. PAGES_BY: the command that runs it,
# where that is not the program itself (another architecture).
PAGES_BY ?= $(BIN)
share    := $(DESTDIR)$(PREFIX)/share
COMMANDS := $(shell sed -nE 's/^COMMAND.([a-z_]+),.*/\1/p' src/cli/command.def)
.PHONY: install-program
install: install-program install-lib
install-program: $(BIN) install-data
	@install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/heteroshard
	@echo "installed $(DESTDIR)$(PREFIX)/bin/heteroshard"
install-lib: lib
	@install -D -m 644 include/heteroshard.h $(DESTDIR)$(PREFIX)/include/heteroshard.h
	@install -D -m 644 $(LIB) $(DESTDIR)$(PREFIX)/lib/libheteroshard.a
	@install -D -m 755 $(SHARED) $(DESTDIR)$(PREFIX)/lib/$(SONAME)
	@ln -sf $(SONAME) $(DESTDIR)$(PREFIX)/lib/libheteroshard.so
	@mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	@printf '%s\n' 'prefix=$(abspath $(PREFIX))' 'libdir=$${prefix}/lib' 'Name: heteroshard' \
		'Description: models of your own, trained over unlike devices' \
		'Version: $(VERSION)' 'Cflags: -I$${prefix}/include' \
		'Libs: -L$${libdir} -lheteroshard' 'Libs.private: -fopenmp $(LDLIBS)' \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/heteroshard.pc
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig || true
.PHONY: install-data
install-data: $(BIN)
	@mkdir -p $(share)/man/man1 $(share)/bash-completion/completions \
		$(DESTDIR)$(ZSH) $(share)/heteroshard
	@$(PAGES_BY) --help=man >$(share)/man/man1/heteroshard.1
	@for c in $(COMMANDS); do \
		$(PAGES_BY) $$c --help=man >$(share)/man/man1/heteroshard-$$c.1 || exit 1; done
	@$(PAGES_BY) --help=bash >$(share)/bash-completion/completions/heteroshard
	@$(PAGES_BY) --help=zsh >$(DESTDIR)$(ZSH)/_heteroshard
	@cp -r examples $(share)/heteroshard/
	@mkdir -p $(DESTDIR)$(UNITS)
	@sed 's,/usr/bin/,$(PREFIX)/bin/,' packaging/heteroshard-worker.service \
		>$(DESTDIR)$(UNITS)/heteroshard-worker.service
uninstall:
	@rm -f $(DESTDIR)$(PREFIX)/bin/heteroshard $(share)/man/man1/heteroshard.1 \
		$(COMMANDS:%=$(share)/man/man1/heteroshard-%.1) \
		$(share)/bash-completion/completions/heteroshard \
		$(DESTDIR)$(ZSH)/_heteroshard \
		$(DESTDIR)$(UNITS)/heteroshard-worker.service
	@rm -rf $(share)/heteroshard
	@cd $(DESTDIR)$(PREFIX) && rm -f include/heteroshard.h lib/pkgconfig/heteroshard.pc \
		lib/libheteroshard.a lib/libheteroshard.so lib/$(SONAME)

# Packages; the same source gives the same bytes. SOURCE_DATE_EPOCH: the time of their files, that
# of the commit.
VERSION := $(shell sed -nE 's/^\#define HS_VERSION "(.*)"/\1/p' src/base/version.h)
export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1700000000)
PACKAGE := $(BUILD)/package
.PHONY: deb dist wheel
deb: $(BIN)
	@rm -rf $(BUILD)/deb && $(MAKE) -s install-program DESTDIR=$(BUILD)/deb PREFIX=/usr \
		UNITS=/lib/systemd/system
	@scripts/package/deb.sh $(BUILD)/deb $(PACKAGE) $(VERSION)
dist:
	@+for a in $(or $(ARCH),x86_64 aarch64); do \
		scripts/package/dist.sh $$a $(PACKAGE) $(VERSION) || exit 1; done
wheel:
	@+scripts/package/wheel.py $(PACKAGE) $(VERSION) $(or $(ARCH),x86_64)

lint: $(BIN)
	@scripts/lint.sh $(BIN)

# The layout that lint asks for (clang-format 14).
format:
	@clang-format -i $$(git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'include/*.h' | \
		grep -v '^src/dev/kernel/')

fuzz:
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),60) $(T)
# Hours of it in pieces; what they come to stands in tests/fuzz/HOURS.md.
fuzz-long:
	@scripts/fuzz-long.sh $(T)

# One model over two unlike devices: examples/mixed.yaml.
demo-mixed: $(BIN) opencl
	@scripts/fetch-smollm2.sh
	@$(BIN) train examples/mixed.yaml overwrite_output_dir=true

demo: $(BIN)
	@scripts/demo.sh $(BIN)

bench: $(BIN)
	@$(BIN) bench

# Writes docs/configuration.md from the rows of the program.
docs: $(BIN)
	@$(BIN) help config --markdown >docs/configuration.md

.PHONY: print-libs
print-libs:
	@echo $(LDLIBS)

clean:
	rm -rf build build-*

-include $(OBJ:.o=.d) $(OLDER:.o=.d) $(BUILD)/cli/main.d $(patsubst %,%.d,$(TESTS)) $(SUPPORT:.o=.d)
