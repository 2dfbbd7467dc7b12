/* Preloaded: makes chosen calls on a journal's data file fail, as FAULTY_DISK says at that moment.
 *
 * FAULTY_DISK is "call:nth:errno ...": the nth such call from when the variable was set fails, every one if nth is 0.
 * With errno -1 a write writes half. Calls: sync, write (of pages), meta (of the page that ends a commit), room.
 * Each failure, and each advice to drop the cache, is a line in the file FAULTY_DISK_LOG.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[256];
static int counts[8];

static void tell(const char *what, const char *more) {
    const char *path = getenv("FAULTY_DISK_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %s\n", what, more);
        fclose(file);
    }
}

static int is_data(int fd) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 9)
        return 0;
    path[size] = 0;
    return !strcmp(path + size - 9, "/data.mdb");
}

/* The errno of this call, or 0. */
static int fault(const char *call, int fd) {
    const char *setting = getenv("FAULTY_DISK");
    int found = 0;
    if (!setting || !*setting || !is_data(fd))
        return 0;
    pthread_mutex_lock(&lock);
    if (strcmp(setting, last)) {
        snprintf(last, sizeof last, "%s", setting);
        memset(counts, 0, sizeof counts);
    }
    char copy[256], *rest = copy, *rule;
    snprintf(copy, sizeof copy, "%s", setting);
    for (int at = 0; (rule = strsep(&rest, " ")) && at < 8; at++) {
        char name[32];
        int nth, code;
        if (sscanf(rule, "%31[^:]:%d:%d", name, &nth, &code) == 3 && !strcmp(name, call)) {
            counts[at]++;
            if (!nth || counts[at] == nth)
                found = code;
        }
    }
    pthread_mutex_unlock(&lock);
    if (found)
        tell("failed", call);
    return found;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_IF(code) do { int code_ = (code); if (code_) { errno = code_; return -1; } } while (0)

int fdatasync(int fd) {
    FAIL_IF(fault("sync", fd));
    return NEXT(fdatasync)(fd);
}

int fsync(int fd) {
    FAIL_IF(fault("sync", fd));
    return NEXT(fsync)(fd);
}

static ssize_t some(int fd, const void *data, size_t size, off_t at) {
    int code = fault(size < 4096 ? "meta" : "write", fd);
    if (code == -1)
        return NEXT(pwrite64)(fd, data, size / 2, at);
    FAIL_IF(code);
    return NEXT(pwrite64)(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return some(fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return some(fd, data, size, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    int code = fault("write", fd);
    if (code == -1)
        return NEXT(write)(fd, parts[0].iov_base, parts[0].iov_len / 2);
    FAIL_IF(code);
    return NEXT(writev)(fd, parts, count);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    int code = fault("room", fd);
    return code ? code : NEXT(posix_fallocate64)(fd, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate64(fd, at, size); }

static int advise(int fd, int advice) {
    if (advice == POSIX_FADV_DONTNEED && is_data(fd)) {
        char line[4400];
        const char *state = "unmapped";
        FILE *maps = fopen("/proc/self/maps", "r");
        while (maps && fgets(line, sizeof line, maps))
            if (strstr(line, "/data.mdb"))
                state = "mapped";
        if (maps)
            fclose(maps);
        tell("dropped", state);
    }
    return 0;
}

int posix_fadvise64(int fd, off64_t at, off64_t size, int advice) {
    advise(fd, advice);
    return NEXT(posix_fadvise64)(fd, at, size, advice);
}

int posix_fadvise(int fd, off_t at, off_t size, int advice) { return posix_fadvise64(fd, at, size, advice); }
