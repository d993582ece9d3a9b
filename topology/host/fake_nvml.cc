// A libnvidia-ml.so.1 that knows one GPU, for tests. Defines say what is wrong with it.
#include "topology/host/fake_nvml.h"

#include <cstdio>
#include <cstring>

using skein::topology::FakeNvml;

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
const char* nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "some error"; }

#ifndef SKEIN_FAKE_LACKS
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = &fake_nvml;
  return std::strcmp(uuid, fake_nvml.uuid) == 0 ? 0 : 6;
}
#endif
int nvmlDeviceGetMemoryInfo(void*, uint64_t* total_free_used) {
  total_free_used[0] = fake_nvml.total;
  total_free_used[1] = fake_nvml.free;
  return fake_nvml.memory_code;
}
#ifndef SKEIN_FAKE_OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void*, uint32_t* count, unsigned char* processes) {
  const bool fits = *count >= fake_nvml.processes;
  *count = fake_nvml.processes;
  if (!fits) return 7;
  for (uint32_t i = 0; i < fake_nvml.processes; ++i) {
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
#endif

}  // extern "C"
