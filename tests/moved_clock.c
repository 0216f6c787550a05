/* Loaded before the C library, it adds to the wall clock the nanoseconds in a file, which is mapped into memory: a test
   moves the clock of a process while that runs. The monotonic clocks are left alone. It allocates nothing, so it also
   works for programs with an allocator of their own that asks for the time, as redis-server does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t none = 0;
static const volatile int64_t *moved;

/* From now on the clock is that of this file, also in a process that was forked. */
void moved_clock_follow(const char *path) {
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  moved = mapped == MAP_FAILED ? &none : mapped;
}

static int64_t offset(void) {
  if (!moved) moved_clock_follow(getenv("MOVED_CLOCK"));
  return *moved;
}

int clock_gettime(clockid_t which, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, which, now);
  if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
    int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + offset();
    now->tv_sec = ns / 1000000000LL;
    now->tv_nsec = ns % 1000000000LL;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
