/* A driver library that answers from a file: lines of "name number", and "process pid bytes". The file is read at each
 * call, so that a test can change what the GPU does, or take it away ("lost 1"). */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Rates;
typedef struct { unsigned int pid; unsigned long long bytes; unsigned int instance, compute; } Process;

static int look(const char *wanted, unsigned long long *value) {
    char name[64];
    unsigned long long number;
    int found = 0;
    FILE *file = fopen(getenv("NVML_STUB"), "r");
    if (!file) return 0;
    char line[256];
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llu", name, &number) == 2 && !strcmp(name, wanted)) { *value = number; found = 1; }
    fclose(file);
    return found;
}

static int answer(const char *wanted, unsigned long long *value) {
    unsigned long long lost = 0;
    if (look("lost", &lost) && lost) return GPU_IS_LOST;
    return look(wanted, value) ? SUCCESS : NOT_SUPPORTED;
}

static int small(const char *wanted, unsigned int *value) {
    unsigned long long number = 0;
    int status = answer(wanted, &number);
    if (status == SUCCESS) *value = (unsigned int)number;
    return status;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int status) { return status == GPU_IS_LOST ? "GPU is lost" : "stub"; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "570.00"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *text, unsigned int size) {
    (void)device;
    snprintf(text, size, "NVIDIA A100-SXM4-80GB");
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned int size) {
    (void)device;
    snprintf(text, size, "GPU-stub");
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = 8, *minor = 0;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    (void)device;
    memory->free = 0;
    int status = answer("total", &memory->total);
    return status == SUCCESS ? answer("used", &memory->used) : status;
}
int nvmlDeviceGetUtilizationRates(void *device, Rates *rates) {
    (void)device;
    rates->memory = 0;
    return small("busy", &rates->gpu);
}
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned int *mhz) {
    (void)device;
    return kind == 1 ? small("clock", mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned int *mhz) {
    (void)device;
    return kind == 1 ? small("highest", mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits) {
    (void)device;
    return answer("reasons", bits);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, Process *processes) {
    (void)device;
    unsigned long long lost = 0, bytes;
    unsigned int room = *count, pid;
    if (look("lost", &lost) && lost) return GPU_IS_LOST;
    char line[256];
    FILE *file = fopen(getenv("NVML_STUB"), "r");
    *count = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "process %u %llu", &pid, &bytes) == 2) {
            if (processes && *count < room) processes[*count] = (Process){pid, bytes, 0, 0};
            ++*count;
        }
    if (file) fclose(file);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
