/* Makes chosen calls of a process to its disk fail, and moves its wall clock: LD_PRELOAD.

   What to do stands in a file of one struct plan, named by ROQUET_FAULTS and mapped by both sides, so
   that it can be changed while the process runs. tools/faults/fault_shim.py is the other side. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct plan {
  int64_t clock_offset_s;
  int32_t armed;
  int32_t error;
  int32_t skip;  /* so many calls go well first */
  int32_t hits;  /* calls that failed so far */
  char call[16];
  char match[64]; /* a part of the path */
};

static struct plan *plan;

__attribute__((constructor)) static void load(void) {
  const char *path = getenv("ROQUET_FAULTS");
  int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
  int fd = path ? real_open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *at = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) plan = at;
  close(fd);
}

/* Whether the call fails; errno is set then. */
static int verdict_path(const char *call, const char *path) {
  if (!plan || !__atomic_load_n(&plan->armed, __ATOMIC_ACQUIRE)) return 0;
  if (strcmp(call, plan->call) != 0 || !path || !strstr(path, plan->match)) return 0;
  if (__atomic_fetch_sub(&plan->skip, 1, __ATOMIC_ACQ_REL) > 0) return 0;
  __atomic_store_n(&plan->skip, 0, __ATOMIC_RELEASE);
  __atomic_fetch_add(&plan->hits, 1, __ATOMIC_ACQ_REL);
  errno = plan->error;
  return 1;
}

static int verdict_fd(const char *call, int fd) {
  if (!plan || !__atomic_load_n(&plan->armed, __ATOMIC_ACQUIRE)) return 0;
  if (strcmp(call, plan->call) != 0) return 0;
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(name, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return verdict_path(call, path);
}

#define REAL(type, name, ...)                                     \
  static type (*real)(__VA_ARGS__);                               \
  if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)


int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  if (verdict_fd("fdatasync", fd)) return -1;
  return real(fd);
}

int fsync(int fd) {
  REAL(int, fsync, int);
  if (verdict_fd("fsync", fd)) return -1;
  return real(fd);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
  if (verdict_fd("pwrite", fd)) return -1;
  return real(fd, data, size, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
  if (verdict_fd("pwrite", fd)) return -1;
  return real(fd, parts, count, at);
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, write, int, const void *, size_t);
  if (verdict_fd("write", fd)) return -1;
  return real(fd, data, size);
}

int fallocate(int fd, int mode, off_t at, off_t size) {
  REAL(int, fallocate, int, int, off_t, off_t);
  if (verdict_fd("fallocate", fd)) return -1;
  return real(fd, mode, at, size);
}

int ftruncate64(int fd, off64_t size) {
  REAL(int, ftruncate64, int, off64_t);
  if (verdict_fd("ftruncate", fd)) return -1;
  return real(fd, size);
}

int open64(const char *path, int flags, ...) {
  REAL(int, open64, const char *, int, ...);
  va_list more;
  va_start(more, flags);
  int mode = flags & O_CREAT ? va_arg(more, int) : 0;
  va_end(more);
  if ((flags & O_CREAT) && verdict_path("create", path)) return -1;
  return real(path, flags, mode);
}

int rename(const char *from, const char *to) {
  REAL(int, rename, const char *, const char *);
  if (verdict_path("rename", to)) return -1;
  return real(from, to);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(int, clock_gettime, clockid_t, struct timespec *);
  int code = real(clock, now);
  if (plan && clock == CLOCK_REALTIME)
    now->tv_sec += __atomic_load_n(&plan->clock_offset_s, __ATOMIC_ACQUIRE);
  return code;
}
