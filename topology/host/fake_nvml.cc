// A libnvidia-ml.so.1 that knows the GPUs that a test plants. Defines say what is wrong with it.
// Structures are written byte by byte, by NVML's documentation.
#include "topology/host/fake_nvml.h"

#include <cstdio>
#include <cstring>

using skein::topology::FakeGpu;
using skein::topology::FakeNvlink;
using skein::topology::FakeNvml;

namespace {

constexpr int kNotSupported = 3;

const FakeGpu& Of(const void* device) { return *static_cast<const FakeGpu*>(device); }

int Write(const char* text, char* to, uint32_t size) {
  if (std::strlen(text) >= size) return 7;
  std::strcpy(to, text);
  return 0;
}

// char legacy[16], five numbers, char bus_id[32].
void WritePci(const char* bus_id, unsigned char* pci) {
  std::memset(pci, 0xee, 36);
  std::memset(pci + 36, 0, 32);
  std::memcpy(pci + 36, bus_id, std::strlen(bus_id));
}

const FakeNvlink* LinkOf(const void* device, uint32_t link) {
  const FakeGpu& gpu = Of(device);
  return static_cast<int>(link) < gpu.links ? &gpu.link[link] : nullptr;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) FakeNvml fake_nvml;

int nvmlInit_v2() {
  ++fake_nvml.inits;
  return fake_nvml.init_code;
}
int nvmlShutdown() {
  ++fake_nvml.ends;
  return 0;
}
const char* nvmlErrorString(int code) {
  if (code == 9) return "Driver Not Loaded";
  return code == 15 ? "GPU is lost" : "some error";
}

#ifndef SKEIN_FAKE_LACKS
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (FakeGpu& gpu : fake_nvml.gpus) {
    *device = &gpu;
    if (*uuid != '\0' && std::strcmp(uuid, gpu.uuid) == 0) return 0;
  }
  return 6;
}
#endif
int nvmlDeviceGetMemoryInfo(void* device, uint64_t* total_free_used) {
  total_free_used[0] = Of(device).total;
  total_free_used[1] = Of(device).free;
  return Of(device).memory_code;
}
#ifndef SKEIN_FAKE_OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, uint32_t* count,
                                            unsigned char* processes) {
  const uint32_t running = Of(device).processes;
  const bool fits = *count >= running;
  *count = running;
  if (!fits) return 7;
  for (uint32_t i = 0; i < running; ++i) {
    const uint32_t pid = 100 + i;
    const uint64_t bytes = i == 0 ? ~uint64_t{0} : uint64_t{i} << 30;
    std::memcpy(processes + 24 * i, &pid, sizeof(pid));
    std::memcpy(processes + 24 * i + 8, &bytes, sizeof(bytes));
  }
  return 0;
}
int nvmlSystemGetProcessName(uint32_t pid, char* name, uint32_t size) {
  if (pid == 100) return 4;  // no permission
  std::snprintf(name, size, "/usr/bin/train%u", pid);
  return 0;
}

int nvmlDeviceGetCount_v2(uint32_t* count) {
  *count = static_cast<uint32_t>(fake_nvml.count);
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(uint32_t index, void** device) {
  FakeGpu& gpu = fake_nvml.gpus[index % 16];
  *device = &gpu;
  return gpu.index_code;
}
int nvmlDeviceGetName(void* device, char* name, uint32_t size) {
  return Write(Of(device).name, name, size);
}
int nvmlDeviceGetUUID(void* device, char* uuid, uint32_t size) {
  return Write(Of(device).uuid, uuid, size);
}
int nvmlDeviceGetPciInfo_v3(void* device, unsigned char* pci) {
  if (Of(device).slice_of >= 0) return 2;  // of no slice
  WritePci(Of(device).bus_id, pci);
  return 0;
}
int nvmlDeviceGetMigMode(void* device, uint32_t* now, uint32_t* after_reset) {
  if (Of(device).mig < 0) return kNotSupported;
  *now = static_cast<uint32_t>(Of(device).mig);
  *after_reset = 1 - *now;
  return 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* slice, void** device) {
  if (Of(slice).slice_of < 0) return 2;
  *device = &fake_nvml.gpus[Of(slice).slice_of];
  return 0;
}
int nvmlDeviceGetEccMode(void* device, int* now, int* after_reboot) {
  if (Of(device).ecc < 0) return kNotSupported;
  *now = Of(device).ecc;
  *after_reboot = 1 - *now;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int since, uint64_t* errors) {
  const FakeGpu& gpu = Of(device);
  if (gpu.ecc < 0) return kNotSupported;
  *errors = kind == 0 ? gpu.corrected : since == 0 ? gpu.errors_since_boot : gpu.errors_ever;
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int kind, uint32_t* mhz) {
  *mhz = kind == 1 ? Of(device).clock : 3201;  // memory's and others
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void* device, int kind, uint32_t* mhz) {
  *mhz = kind == 1 ? Of(device).max_clock : 3201;
  return 0;
}
// The name that older drivers have.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, uint64_t* reasons) {
  *reasons = Of(device).reasons;
  return 0;
}
int nvmlDeviceGetNvLinkState(void* device, uint32_t link, int* active) {
  const FakeNvlink* const found = LinkOf(device, link);
  if (found == nullptr) return 2;
  *active = found->active;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, uint32_t link, unsigned char* pci) {
  const FakeNvlink* const found = LinkOf(device, link);
  if (found == nullptr || *found->remote == '\0') return kNotSupported;
  WritePci(found->remote, pci);
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, uint32_t link, int* kind) {
  const FakeNvlink* const found = LinkOf(device, link);
  if (found == nullptr) return 2;
  *kind = found->kind;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) {
  const auto index = static_cast<const FakeGpu*>(b) - fake_nvml.gpus;
  *level = Of(a).ancestor[index];
  return 0;
}
#endif

}  // extern "C"
