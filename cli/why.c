/* SPDX-License-Identifier: BSD-2-Clause */
/* Why a program that `faultline run` started opened no device: what its file tells about it. */
#include "cli/cli.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* as execvp() finds it; -1: not there */
static int open_app(const char *app, char path[PATH_MAX])
{
	const char *dirs = getenv("PATH");

	if (strchr(app, '/') || !dirs) {
		snprintf(path, PATH_MAX, "%s", app);
		return open(path, O_RDONLY | O_CLOEXEC);
	}
	for (;;) {
		size_t n = strcspn(dirs, ":");

		snprintf(path, PATH_MAX, "%.*s%s%s", (int)n, dirs, n ? "/" : "", app);
		if (access(path, X_OK) == 0)
			return open(path, O_RDONLY | O_CLOEXEC);
		if (!dirs[n])
			return -1;
		dirs += n + 1;
	}
}

struct elf_facts {
	bool interp, rpath, runpath;
};

static bool read_elf(int fd, struct elf_facts *facts)
{
	Elf64_Ehdr eh;

	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_phentsize != sizeof(Elf64_Phdr))
		return false;
	for (unsigned i = 0; i < eh.e_phnum; i++) {
		Elf64_Phdr ph;
		Elf64_Dyn dyn;

		if (pread(fd, &ph, sizeof(ph), (off_t)(eh.e_phoff + i * sizeof(ph))) != sizeof(ph))
			return false;
		if (ph.p_type == PT_INTERP)
			facts->interp = true;
		if (ph.p_type != PT_DYNAMIC)
			continue;
		for (Elf64_Xword off = 0; off + sizeof(dyn) <= ph.p_filesz; off += sizeof(dyn)) {
			if (pread(fd, &dyn, sizeof(dyn), (off_t)(ph.p_offset + off)) !=
				    sizeof(dyn) ||
			    dyn.d_tag == DT_NULL)
				break;
			facts->rpath |= dyn.d_tag == DT_RPATH;
			facts->runpath |= dyn.d_tag == DT_RUNPATH;
		}
	}
	return true;
}

const char *why_no_device(const char *app)
{
	struct elf_facts facts = {0};
	char path[PATH_MAX];
	struct stat st;
	const char *why = "it ended before it opened one, or uses no RDMA";
	int fd = open_app(app, path);

	if (fd < 0)
		return why;
	if (fstat(fd, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)) && geteuid() != 0)
		why = "it is set-uid or set-gid, so the loader ignores our libraries";
	else if (fgetxattr(fd, "security.capability", NULL, 0) > 0 && geteuid() != 0)
		why = "it has file capabilities, so the loader ignores our libraries";
	else if (!read_elf(fd, &facts))
		why = "it is a script or another format; what it starts opened no device either";
	else if (!facts.interp)
		why = "it is statically linked, so it has its own libibverbs or none";
	else if (facts.rpath && !facts.runpath)
		why = "its own RPATH may find another libibverbs first (see: readelf -d)";
	close(fd);
	return why;
}
