/* A wall clock that is SKEW_SECONDS ahead, for the processes that preload it; no other clock moves. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t skew(void) {
  const char *seconds = getenv("SKEW_SECONDS");
  return seconds == NULL ? 0 : atol(seconds);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, now);
  if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
  return status;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec at;
  (void)zone;
  int status = clock_gettime(CLOCK_REALTIME, &at);
  now->tv_sec = at.tv_sec;
  now->tv_usec = at.tv_nsec / 1000;
  return status;
}

time_t time(time_t *stored) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (stored != NULL) *stored = at.tv_sec;
  return at.tv_sec;
}
