/* A stub libcuda.so.1: contexts, and memory that is counted and does not exist; see state.h. */
#include "state.h"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    UNKNOWN = 999
};

#define MOST_DEVICES (MOST_GPUS * MOST_MIGS)

struct context {
    char gpu[PATH_ROOM], folder[PATH_ROOM];
    int held; /* the locked file that says what this process holds; 0: no context yet */
    bytes_t bytes;
};

static struct context devices[MOST_DEVICES];
static int count;
static int initialized;
static __thread struct context *current;

static void show(int gpu, int mig)
{
    struct context *device = &devices[count];
    if (count < MOST_DEVICES && device_folder(device->gpu, gpu, -1) &&
        device_folder(device->folder, gpu, mig))
        count++;
}

/* A GPU; where it is cut into MIG devices, these. */
static void show_whole(int gpu)
{
    if (!has_migs(gpu))
        show(gpu, -1);
    else
        for (int mig = 0; mig < MOST_MIGS; mig++)
            show(gpu, mig);
}

static int is_named(const char *word, const char *folder)
{
    char uuid[96];
    read_line(folder, "uuid", uuid, sizeof uuid);
    return !strncmp(uuid, word, strlen(word));
}

static void show_named(const char *word)
{
    char folder[PATH_ROOM];
    if (*word && strspn(word, "0123456789") == strlen(word)) {
        show_whole(atoi(word));
        return;
    }
    if (strncmp(word, "GPU-", 4) && strncmp(word, "MIG-", 4))
        return;
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        for (int mig = -1; mig < MOST_MIGS; mig++)
            if (device_folder(folder, gpu, mig) && is_named(word, folder)) {
                if (mig < 0)
                    show_whole(gpu);
                else
                    show(gpu, mig);
                return;
            }
}

static void show_visible(void)
{
    char words[PATH_ROOM], *rest = words, *word;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible) {
        for (int gpu = 0; gpu < MOST_GPUS; gpu++)
            show_whole(gpu);
        return;
    }
    snprintf(words, sizeof words, "%s", visible);
    while ((word = strsep(&rest, ","))) {
        int before = count;
        show_named(word);
        if (count == before) /* what names nothing ends the list */
            return;
    }
}

static int is_away(const struct context *device)
{
    return !exists(root(), "driver") || exists(device->gpu, "lost");
}

static void note(struct context *device)
{
    if (dprintf(device->held, "%20llu\n", device->bytes) < 0 || lseek(device->held, 0, SEEK_SET))
        abort();
}

int cuInit(unsigned flags)
{
    (void)flags;
    if (!exists(root(), "driver"))
        return NO_DEVICE;
    if (!initialized)
        show_visible();
    initialized = 1;
    return count ? SUCCESS : NO_DEVICE;
}

int cuDeviceGetCount(int *devices_count)
{
    *devices_count = count;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= count)
        return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(struct context **context, int ordinal)
{
    char path[PATH_ROOM], name[32];
    if (ordinal < 0 || ordinal >= count)
        return INVALID_DEVICE;
    struct context *device = *context = &devices[ordinal];
    if (is_away(device))
        return UNKNOWN;
    if (device->held)
        return SUCCESS;
    bytes_t bytes = read_number(device->folder, "context");
    if (used_bytes(device->folder) + bytes > read_number(device->folder, "total"))
        return OUT_OF_MEMORY;
    snprintf(name, sizeof name, "held/%d", getpid());
    if (!path_of(path, device->folder, name))
        return UNKNOWN;
    device->held = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (device->held <= 0 || flock(device->held, LOCK_EX))
        abort();
    device->bytes = bytes;
    note(device);
    return SUCCESS;
}

int cuCtxSetCurrent(struct context *context)
{
    current = context;
    return SUCCESS;
}

int cuMemAlloc_v2(bytes_t *pointer, size_t size)
{
    static bytes_t next = 0x7f0000000000;
    if (!current)
        return INVALID_CONTEXT;
    if (!size)
        return INVALID_VALUE;
    if (is_away(current))
        return UNKNOWN;
    if (used_bytes(current->folder) + size > read_number(current->folder, "total"))
        return OUT_OF_MEMORY;
    current->bytes += size;
    note(current);
    *pointer = next;
    next += size;
    return SUCCESS;
}

int cuGetErrorName(int status, const char **name)
{
    switch (status) {
    case SUCCESS:
        *name = "CUDA_SUCCESS";
        break;
    case OUT_OF_MEMORY:
        *name = "CUDA_ERROR_OUT_OF_MEMORY";
        break;
    case NO_DEVICE:
        *name = "CUDA_ERROR_NO_DEVICE";
        break;
    case INVALID_DEVICE:
        *name = "CUDA_ERROR_INVALID_DEVICE";
        break;
    case INVALID_CONTEXT:
        *name = "CUDA_ERROR_INVALID_CONTEXT";
        break;
    default:
        *name = "CUDA_ERROR_UNKNOWN";
    }
    return SUCCESS;
}
