/* What the two stub libraries share: a folder of small files that describes the GPUs of a test.
 *
 *   $STUB_GPU/driver       a number, another one at each start of the driver; absent while it is gone
 *   $STUB_GPU/inits        one byte for each nvmlInit
 *   $STUB_GPU/0/           a GPU; further ones are 1, 2 ...
 *       uuid name total pci
 *       context            bytes that a context takes
 *       extra              bytes used by nobody who is listed
 *       lost               exists: the GPU has fallen off the bus
 *       stuck              exists: what ended processes held is not given back
 *       listing            how its processes are listed; see nvml.c
 *       held/PID           bytes that a process holds, locked by it: the kernel ends the lock, and by
 *                          that the use, when the process is gone
 *       mig0/ mig1/ ...    MIG devices, each described like a GPU
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MOST_GPUS 8
#define MOST_MIGS 7
#define PATH_ROOM 4096

typedef unsigned long long bytes_t;

struct holder {
    unsigned pid;
    bytes_t bytes;
};

static int path_of(char *path, const char *folder, const char *name)
{
    return snprintf(path, PATH_ROOM, "%s/%s", folder, name) < PATH_ROOM;
}

static inline int exists(const char *folder, const char *name)
{
    char path[PATH_ROOM];
    return path_of(path, folder, name) && access(path, F_OK) == 0;
}

/* The first line of a file; empty where there is none. */
static inline int read_line(const char *folder, const char *name, char *line, int room)
{
    char path[PATH_ROOM];
    FILE *file = path_of(path, folder, name) ? fopen(path, "re") : NULL;
    line[0] = 0;
    if (!file)
        return 0;
    if (fgets(line, room, file))
        line[strcspn(line, "\n")] = 0;
    fclose(file);
    return 1;
}

static inline bytes_t read_number(const char *folder, const char *name)
{
    char line[64];
    read_line(folder, name, line, sizeof line);
    return strtoull(line, NULL, 10);
}

static inline const char *root(void)
{
    const char *folder = getenv("STUB_GPU");
    return folder ? folder : "/nonexistent";
}

/* The folder of a GPU, or of one of its MIG devices (mig < 0: the GPU); false where there is none. */
static inline int device_folder(char *folder, int gpu, int mig)
{
    char name[32];
    if (mig < 0)
        snprintf(name, sizeof name, "%d", gpu);
    else
        snprintf(name, sizeof name, "%d/mig%d", gpu, mig);
    return path_of(folder, root(), name) && exists(folder, "uuid");
}

static inline int has_migs(int gpu)
{
    char folder[PATH_ROOM];
    for (int mig = 0; mig < MOST_MIGS; mig++)
        if (device_folder(folder, gpu, mig))
            return 1;
    return 0;
}

/* Whether a living process still locks its file, or nothing is given back. */
static inline int is_held(const char *device, const char *folder, const char *name)
{
    char path[PATH_ROOM];
    if (exists(device, "stuck"))
        return 1;
    int file = path_of(path, folder, name) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    int held = flock(file, LOCK_SH | LOCK_NB) != 0;
    close(file);
    return held;
}

/* The processes that hold memory of a device; as many as there is room for. */
static inline unsigned holders(const char *folder, struct holder *list, unsigned room)
{
    char held[PATH_ROOM];
    unsigned count = 0;
    DIR *entries = path_of(held, folder, "held") ? opendir(held) : NULL;
    if (!entries)
        return 0;
    for (struct dirent *one; count < room && (one = readdir(entries));)
        if (one->d_name[0] != '.' && is_held(folder, held, one->d_name)) {
            list[count].pid = strtoul(one->d_name, NULL, 10);
            list[count++].bytes = read_number(held, one->d_name);
        }
    closedir(entries);
    return count;
}

#define MOST_HOLDERS 256

static inline bytes_t used_bytes(const char *folder)
{
    struct holder list[MOST_HOLDERS];
    bytes_t used = read_number(folder, "extra");
    for (unsigned left = holders(folder, list, MOST_HOLDERS); left--;)
        used += list[left].bytes;
    return used;
}
