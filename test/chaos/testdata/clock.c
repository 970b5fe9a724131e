// Preloaded into a server, this adds to its wall clock the microseconds that the file
// named by CLOCK_SHIFT_FILE holds, a signed 64-bit number in the machine's order. The
// file is mapped, so a change counts from the next reading on. The monotonic clock is
// left alone.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void map_shift(void)
{
	const char *name = getenv("CLOCK_SHIFT_FILE");
	int fd = name ? open(name, O_RDONLY) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		shift = at;
}

static int64_t shifted(int64_t micros) { return shift ? micros + *shift : micros; }

int clock_gettime(clockid_t id, struct timespec *at)
{
	int failed = syscall(SYS_clock_gettime, id, at);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t micros = shifted(at->tv_sec * INT64_C(1000000) + at->tv_nsec / 1000);
		at->tv_sec = micros / 1000000;
		at->tv_nsec = micros % 1000000 * 1000 + at->tv_nsec % 1000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	(void)zone;
	if (!failed && at) {
		at->tv_sec = now.tv_sec;
		at->tv_usec = now.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *at)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
