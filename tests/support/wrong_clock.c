/* A machine's clock that is wrong, for the processes that are loaded with this: they read and set this one.

   WRONG_CLOCK is a file that holds one double, the seconds it is ahead of the machine's own. With WRONG_CLOCK_FIXED it
   may not be set. What a kernel stamps, such as files, has the machine's own time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double *ahead_s(void) {
    static double *shared, none;
    if (!shared) {
        const char *name = getenv("WRONG_CLOCK");
        int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
        void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        shared = found == MAP_FAILED ? &none : found;
    }
    return shared;
}

static double seconds(const struct timespec *at) {
    return (double)at->tv_sec + (double)at->tv_nsec / 1e9;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        double now_s = seconds(at) + *ahead_s();
        at->tv_sec = (time_t)floor(now_s);
        at->tv_nsec = (long)((now_s - floor(now_s)) * 1e9);
    }
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

int clock_settime(clockid_t clock, const struct timespec *at) {
    struct timespec now;
    if (clock != CLOCK_REALTIME || getenv("WRONG_CLOCK_FIXED")) {
        errno = EPERM;
        return -1;
    }
    if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &now))
        return -1;
    *ahead_s() = seconds(at) - seconds(&now);
    return 0;
}
