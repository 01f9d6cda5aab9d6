/* A stub libnvidia-ml.so.1: the calls that pynvml makes for us, answered from the folder of state.h.
 *
 * A device's file `listing` says how its processes are listed:
 *   (absent)      pid and bytes
 *   host-pids     under other pids than their own, as a container sees them
 *   no-bytes      without their bytes
 *   empty         not at all
 *   unsupported   the call is refused
 */
#include "state.h"

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    UNKNOWN = 999
};

#define NOT_AVAILABLE (~0ULL)
#define NO_INSTANCE (~0U)
#define HOST_PID_OFFSET 100000000U

struct device {
    int gpu, mig; /* mig -1: the whole GPU */
    char folder[PATH_ROOM];
};

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
};

struct memory {
    bytes_t total, free, used;
};

struct memory_v2 {
    unsigned version;
    bytes_t total, reserved, free, used;
};

struct process {
    unsigned pid;
    bytes_t bytes;
    unsigned gpu_instance, compute_instance;
};

static struct device devices[MOST_GPUS][1 + MOST_MIGS];
static char started[32]; /* the driver that nvmlInit found */
static int opened;

/* Handles and the library itself do not outlive the driver they were made with. */
static int driver_trouble(void)
{
    char now[sizeof started];
    if (!opened)
        return UNINITIALIZED;
    if (!read_line(root(), "driver", now, sizeof now))
        return DRIVER_NOT_LOADED;
    return strcmp(now, started) ? UNKNOWN : SUCCESS;
}

static int trouble(const struct device *device)
{
    char gpu[PATH_ROOM];
    int status = driver_trouble();
    if (status)
        return status;
    if (!device || !device_folder(gpu, device->gpu, -1))
        return INVALID_ARGUMENT;
    return exists(gpu, "lost") ? GPU_IS_LOST : SUCCESS;
}

static int handle_of(int gpu, int mig, struct device **handle)
{
    struct device *device = &devices[gpu][1 + mig];
    if (!device_folder(device->folder, gpu, mig))
        return NOT_FOUND;
    device->gpu = gpu;
    device->mig = mig;
    *handle = device;
    return trouble(device);
}

/* A second call only counts: to meet a new driver, the old one has to be shut down first. */
int nvmlInitWithFlags(unsigned flags)
{
    char path[PATH_ROOM];
    (void)flags;
    int log = path_of(path, root(), "inits")
                  ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)
                  : -1;
    if (log >= 0) {
        if (write(log, ".", 1) != 1)
            return UNKNOWN;
        close(log);
    }
    if (!opened && !read_line(root(), "driver", started, sizeof started))
        return DRIVER_NOT_LOADED;
    opened++;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    if (!opened)
        return UNINITIALIZED;
    opened--;
    return SUCCESS;
}

const char *nvmlErrorString(int status)
{
    return status == SUCCESS ? "Success" : "An error of the stub";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    char folder[PATH_ROOM];
    int status = driver_trouble();
    for (*count = 0; *count < MOST_GPUS && device_folder(folder, *count, -1);)
        ++*count;
    return status;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **handle)
{
    int status = driver_trouble();
    if (status)
        return status;
    if (index >= MOST_GPUS || handle_of(index, -1, handle) == NOT_FOUND)
        return INVALID_ARGUMENT;
    return trouble(*handle);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **handle)
{
    char folder[PATH_ROOM], found[96];
    int status = driver_trouble();
    if (status)
        return status;
    for (int gpu = 0; gpu < MOST_GPUS; gpu++)
        for (int mig = -1; mig < MOST_MIGS; mig++)
            if (device_folder(folder, gpu, mig)) {
                read_line(folder, "uuid", found, sizeof found);
                if (!strcmp(found, uuid))
                    return handle_of(gpu, mig, handle);
            }
    return NOT_FOUND;
}

static int copy_line(struct device *device, const char *name, char *line, unsigned room)
{
    int status = trouble(device);
    if (!status)
        read_line(device->folder, name, line, room);
    return status;
}

int nvmlDeviceGetName(struct device *device, char *name, unsigned room)
{
    return copy_line(device, "name", name, room);
}

int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned room)
{
    return copy_line(device, "uuid", uuid, room);
}

int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *info)
{
    memset(info, 0, sizeof *info);
    return copy_line(device, "pci", info->bus_id, sizeof info->bus_id);
}

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    int status = trouble(device);
    if (status)
        return status;
    memory->total = read_number(device->folder, "total");
    memory->used = used_bytes(device->folder);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    struct memory plain;
    int status = nvmlDeviceGetMemoryInfo(device, &plain);
    if (status)
        return status;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count,
                                            struct process *list)
{
    char listing[32];
    struct holder found[MOST_HOLDERS];
    unsigned room = *count;
    int status = trouble(device);
    if (status)
        return status;
    read_line(device->folder, "listing", listing, sizeof listing);
    if (!strcmp(listing, "unsupported"))
        return NOT_SUPPORTED;
    *count = strcmp(listing, "empty") ? holders(device->folder, found, MOST_HOLDERS) : 0;
    if (*count > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        list[i].pid = found[i].pid + (strcmp(listing, "host-pids") ? 0 : HOST_PID_OFFSET);
        list[i].bytes = strcmp(listing, "no-bytes") ? found[i].bytes : NOT_AVAILABLE;
        list[i].gpu_instance = device->mig < 0 ? NO_INSTANCE : (unsigned)device->mig;
        list[i].compute_instance = device->mig < 0 ? NO_INSTANCE : 0;
    }
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    int status = trouble(device);
    if (status)
        return status;
    if (device->mig >= 0 || !has_migs(device->gpu))
        return NOT_SUPPORTED;
    *current = *pending = 1;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count)
{
    *count = MOST_MIGS;
    return trouble(device);
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index,
                                        struct device **handle)
{
    int status = trouble(device);
    if (status)
        return status;
    return index < MOST_MIGS ? handle_of(device->gpu, index, handle) : INVALID_ARGUMENT;
}
