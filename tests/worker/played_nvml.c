/* Plays libnvidia-ml.so.1 with two cards: the functions that are read, with the types that nvml.h gives them.
   The first card tells all; the second, as of a virtual machine, how busy it is and how much memory it uses. */
#include <string.h>

typedef int nvmlReturn_t; /* an enum: 0 is success, 3 not supported, 6 not found */
typedef struct nvmlDevice_st { const char *uuid; int tells; } *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;

static struct nvmlDevice_st cards[] = {{"GPU-1a", 1}, {"GPU-2b", 0}};

/* What a test changes. */
int initialised = 0, fails = 0;
unsigned int busy = 80, milliwatts = 300000, sm_mhz = 1980, memory_mhz = 2619, celsius = 60;
unsigned long long used = 5ULL << 30, millijoules = 1500, reasons = 0x1;
unsigned int samples = 0;

nvmlReturn_t nvmlInit_v2(void) {
  initialised = !fails;
  return fails ? 9 : 0;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  for (int at = 0; at < 2; at++)
    if (initialised && !strcmp(cards[at].uuid, uuid)) {
      *device = &cards[at];
      return 0;
    }
  return 6;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *found) {
  samples += device->tells;
  found->gpu = busy;
  found->memory = 7;
  return 0;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *found) {
  found->total = 80ULL << 30;
  found->free = found->total - used;
  found->used = used;
  return 0;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *found) {
  *found = milliwatts;
  return device->tells ? 0 : 3;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int kind, unsigned int *found) {
  *found = kind == 1 ? sm_mhz : kind == 2 ? memory_mhz : 0;
  return device->tells ? 0 : 3;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *found) {
  *found = sensor == 0 ? celsius : 0;
  return device->tells ? 0 : 3;
}

nvmlReturn_t REASONS(nvmlDevice_t device, unsigned long long *found) {
  *found = reasons;
  return device->tells ? 0 : 3;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *found) {
  *found = millijoules;
  return device->tells ? 0 : 3;
}
