/* Preloaded into a program: its disk and its clock are bad for as long as a file says so.

   FAULT_FILE names that file, FAULT_FOLDER the folder whose files are on the bad disk. The file says

       once CALL        the next such call fails with EIO, and the file is removed: one call of all processes fails
       lasting CALL     every such call fails with EIO
       slow CALL        every such call takes a fifth of a second
       clock SECONDS    the wall clock is so much ahead

   CALL is open, read, write, sync, rename, mkdir, unlink or any. FAULT_FILE.struck is made when something has happened.
   The programs that it starts get the same, unless FAULT_ALONE is set. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *file, *folder;

__attribute__((constructor)) static void begin(void)
{
    file = getenv("FAULT_FILE");
    folder = getenv("FAULT_FOLDER");
    if (getenv("FAULT_ALONE"))
        unsetenv("LD_PRELOAD");
}

/* What the file says now: 0 when it says nothing. */
static int fault(char kind[16], char what[32])
{
    char text[64];
    int stream = file ? syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC) : -1;
    if (stream < 0)
        return 0;
    long length = syscall(SYS_read, stream, text, sizeof text - 1);
    syscall(SYS_close, stream);
    text[length > 0 ? length : 0] = 0;
    return sscanf(text, "%15s %31s", kind, what) == 2;
}

static void struck(void)
{
    char mark[PATH_MAX];
    snprintf(mark, sizeof mark, "%s.struck", file);
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

static int below(const char *path)
{
    char whole[2 * PATH_MAX];
    size_t length = folder ? strlen(folder) : 0;
    if (path[0] != '/' && syscall(SYS_getcwd, whole, PATH_MAX) > 0) {
        strcat(strcat(whole, "/"), path);
        path = whole;
    }
    return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || !path[length]);
}

/* Whether this call is to fail; errno says with what. */
static int fails(const char *call, const char *path)
{
    int before = errno;
    char kind[16], what[32];
    if (!fault(kind, what) || strcmp(kind, "clock") == 0 || (strcmp(what, "any") && strcmp(what, call)) || !below(path)) {
        errno = before;
        return 0;
    }
    if (strcmp(kind, "once") == 0 && syscall(SYS_unlinkat, AT_FDCWD, file, 0) != 0) {
        errno = before; /* another process was first */
        return 0;
    }
    struck();
    if (strcmp(kind, "slow") == 0) {
        struct timespec pause = {0, 200000000};
        syscall(SYS_nanosleep, &pause, NULL);
        errno = before;
        return 0;
    }
    errno = EIO;
    return 1;
}

static int fails_open(const char *call, int descriptor)
{
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = file && access(file, F_OK) == 0 ? readlink(link, path, sizeof path - 1) : -1;
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(call, path);
}

#define OPENS(name, at, before)                                          \
    int name(before const char *path, int flags, ...)                    \
    {                                                                    \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        int mode = va_arg(more, int);                                    \
        va_end(more);                                                    \
        return fails("open", path) ? -1 : syscall(SYS_openat, at, path, flags, mode); \
    }
#define NONE
#define FOLDER int where,
OPENS(open, AT_FDCWD, NONE)
OPENS(open64, AT_FDCWD, NONE)
OPENS(openat, where, FOLDER)
OPENS(openat64, where, FOLDER)

ssize_t read(int from, void *to, size_t size) { return fails_open("read", from) ? -1 : syscall(SYS_read, from, to, size); }
ssize_t write(int to, const void *from, size_t size)
{
    return fails_open("write", to) ? -1 : syscall(SYS_write, to, from, size);
}
ssize_t pwrite(int to, const void *from, size_t size, off_t at)
{
    return fails_open("write", to) ? -1 : syscall(SYS_pwrite64, to, from, size, at);
}
ssize_t pwrite64(int to, const void *from, size_t size, off_t at) { return pwrite(to, from, size, at); }
ssize_t sendfile(int to, int from, off_t *at, size_t size)
{
    return fails_open("write", to) ? -1 : syscall(SYS_sendfile, to, from, at, size);
}
ssize_t sendfile64(int to, int from, off_t *at, size_t size) { return sendfile(to, from, at, size); }
int ftruncate(int of, off_t size) { return fails_open("write", of) ? -1 : syscall(SYS_ftruncate, of, size); }
int ftruncate64(int of, off_t size) { return ftruncate(of, size); }
int fsync(int of) { return fails_open("sync", of) ? -1 : syscall(SYS_fsync, of); }
int rename(const char *from, const char *to)
{
    return fails("rename", to) ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int mkdir(const char *path, mode_t mode) { return fails("mkdir", path) ? -1 : syscall(SYS_mkdirat, AT_FDCWD, path, mode); }
int mkfifo(const char *path, mode_t mode)
{
    return fails("mkdir", path) ? -1 : syscall(SYS_mknodat, AT_FDCWD, path, S_IFIFO | mode, 0);
}
int unlink(const char *path) { return fails("unlink", path) ? -1 : syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

int clock_gettime(clockid_t which, struct timespec *now)
{
    int before = errno;
    char kind[16], what[32];
    int code = syscall(SYS_clock_gettime, which, now);
    if (code == 0 && which == CLOCK_REALTIME && fault(kind, what) && strcmp(kind, "clock") == 0) {
        now->tv_sec += atol(what);
        struck();
    }
    errno = code ? errno : before;
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    int code = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return code;
}
time_t time(time_t *into)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into)
        *into = exact.tv_sec;
    return exact.tv_sec;
}
