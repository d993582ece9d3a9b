// Preloaded into a program, stands between it and its GPU's driver, NVML and NCCL, and makes of
// them what SKEIN_FAULTY_DRIVER asks for. FAULT:FILE begins once FILE is there, and lets each step,
// a graph or a persistent kernel, take 10 ms more until then, so that an answer of some tokens is
// under way when FILE comes:
//   illegal-address, trap  before the next step a kernel writes where no memory is, or traps
//   ecc                    the next step meets an uncorrectable ECC error, as do later looks
//   stuck                  the next step's launch never returns
//   slow                   nothing happens, and steps take 10 ms more for ever
// or waits until FILE is there:
//   late-check, late-load  before the second look at what memory is free, or the first large
//                          allocation behind it
// FAULT alone is so from the start:
//   old-driver, old-gpu    a driver of CUDA 12.4, a GPU of compute capability 7.0
//   slice                  the GPU is a slice of one, as CUDA and NVML tell
//   old-nccl               NCCL 2.27.7
//
// The CUDA runtime, which is linked statically, finds the driver by dlsym and cuGetProcAddress.
// Their few functions are declared here, so that no build needs CUDA's headers.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kEccUncorrectable = 214;
constexpr int kMajor = 75;  // of compute capability, as an attribute
constexpr int kMinor = 76;
constexpr int kNvmlNotFound = 6;
constexpr size_t kLarge = size_t{1} << 20;

// ---- What is asked for ----

struct Asked {
  Asked() {
    const char* const text = getenv("SKEIN_FAULTY_DRIVER");
    if (text == nullptr) return;
    const size_t size = std::strcspn(text, ":");
    std::snprintf(fault, sizeof(fault), "%.*s", static_cast<int>(size), text);
    if (text[size] == ':') std::snprintf(file, sizeof(file), "%s", text + size + 1);
  }

  char fault[32] = {};
  char file[1024] = {};
};

const Asked& TheAsked() {
  static const Asked asked;
  return asked;
}

bool IsAsked(const char* fault) { return std::strcmp(TheAsked().fault, fault) == 0; }
bool FileIsThere() { return access(TheAsked().file, F_OK) == 0; }
void Say(const char* what) {
  std::fprintf(stderr, "faulty driver: %s %s\n", TheAsked().fault, what);
}

// Whether the fault begins, which it does once.
std::atomic<bool> begun = false;
bool Begins(const char* fault) {
  if (!IsAsked(fault) || begun || !FileIsThere() || begun.exchange(true)) return false;
  Say("begins");
  return true;
}

void AwaitFile() {
  Say("waits");
  while (!FileIsThere()) usleep(1000);
}

// ---- Functions in front of the real ones ----

using Real = std::atomic<void*>;

template <typename... Args>
int Call(const Real& real, Args... args) {
  return reinterpret_cast<int (*)(Args...)>(real.load())(args...);
}

// Not this library's own.
void* FindReal(void* handle, const char* name) {
  using Dlsym = void*(void*, const char*);
  static auto* const find = reinterpret_cast<Dlsym*>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return find(handle, name);
}

constexpr char kKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry illegal_address() {
  .reg .u64 %nowhere;
  .reg .u32 %value;
  mov.u64 %nowhere, 16;
  mov.u32 %value, 1;
  st.global.u32 [%nowhere], %value;
  ret;
}
.visible .entry trapped() {
  trap;
  ret;
}
)";

// A kernel that fails, loaded by the first step, and launched by one: loading waits for the GPU.
class FailingKernel {
 public:
  explicit FailingKernel(const char* name) {
    const Real load = FindReal(cuda_, "cuModuleLoadData");
    const Real get = FindReal(cuda_, "cuModuleGetFunction");
    void* module = nullptr;
    code_ = Call(load, &module, static_cast<const void*>(kKernels));
    if (code_ == kSuccess) code_ = Call(get, &function_, module, name);
  }
  void Launch(void* stream) {
    const Real launch = FindReal(cuda_, "cuLaunchKernel");
    void** const none = nullptr;
    if (code_ == kSuccess) {
      code_ = Call(launch, function_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, none, none);
    }
    code_ == kSuccess ? Say("launched") : Say("cannot be launched");
  }

 private:
  void* const cuda_ = dlopen("libcuda.so.1", RTLD_NOW);
  void* function_ = nullptr;
  int code_ = kSuccess;
};

Real graph_launch, kernel_launch, event_query, stream_query, memory_info, allocate, driver_version;
Real device_attribute, device_name, nvml_by_uuid, proc_address, proc_address_2;

void FailWith(const char* fault, const char* name, void* stream) {
  if (!IsAsked(fault)) return;
  static FailingKernel kernel(name);
  if (Begins(fault)) kernel.Launch(stream);
}

void TakeLonger() {
  const bool waits = IsAsked("illegal-address") || IsAsked("trap") || IsAsked("ecc") ||
                     IsAsked("stuck") || IsAsked("slow");
  if (waits && !begun) usleep(10'000);
}

// Before each step.
int MeetFault(void* stream) {
  TakeLonger();
  FailWith("illegal-address", "illegal_address", stream);
  FailWith("trap", "trapped", stream);
  if (Begins("ecc")) return kEccUncorrectable;
  if (Begins("stuck")) {
    while (true) pause();
  }
  return kSuccess;
}

int GraphLaunch(void* graph, void* stream) {
  const int code = MeetFault(stream);
  return code == kSuccess ? Call(graph_launch, graph, stream) : code;
}

// As cuda.h has CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};
// No other kernel has as much shared memory, or as many threads with much of it.
bool IsStep(const LaunchConfig& config) {
  return config.block[0] == 384 && config.shared_bytes > 190 * 1024;
}
int KernelLaunch(const LaunchConfig* config, void* kernel, void** arguments, void** more) {
  const int code = IsStep(*config) ? MeetFault(config->stream) : kSuccess;
  return code == kSuccess ? Call(kernel_launch, config, kernel, arguments, more) : code;
}

bool EccBegan() { return IsAsked("ecc") && begun; }
int EventQuery(void* event) { return EccBegan() ? kEccUncorrectable : Call(event_query, event); }
int StreamQuery(void* stream) {
  return EccBegan() ? kEccUncorrectable : Call(stream_query, stream);
}

std::atomic<int> looks = 0;  // at what memory is free
int MemoryInfo(size_t* free, size_t* total) {
  if (++looks == 2 && IsAsked("late-check")) AwaitFile();
  return Call(memory_info, free, total);
}
int Allocate(uint64_t* address, size_t bytes) {
  static std::atomic<bool> waited = false;
  if (IsAsked("late-load") && looks >= 2 && bytes >= kLarge && !waited.exchange(true)) AwaitFile();
  return Call(allocate, address, bytes);
}

int DriverVersion(int* version) {
  const int code = Call(driver_version, version);
  if (IsAsked("old-driver")) *version = 12040;
  return code;
}
int DeviceAttribute(int* value, int attribute, int device) {
  const int code = Call(device_attribute, value, attribute, device);
  if (IsAsked("old-gpu") && attribute == kMajor) *value = 7;
  if (IsAsked("old-gpu") && attribute == kMinor) *value = 0;
  return code;
}
int DeviceName(char* name, int size, int device) {
  const int code = Call(device_name, name, size, device);
  if (IsAsked("slice")) std::snprintf(name, size, "NVIDIA H200 MIG 1g.18gb");
  return code;
}

int NvmlByUuid(const char* uuid, void** device) {
  if (!IsAsked("slice")) return Call(nvml_by_uuid, uuid, device);
  char real[128];
  std::snprintf(real, sizeof(real), "GPU%s", uuid + 3);
  if (std::strncmp(uuid, "MIG", 3) != 0) return kNvmlNotFound;
  return Call(nvml_by_uuid, static_cast<const char*>(real), device);
}

Real nccl_version;
int NcclVersion(int* version) {
  const int code = Call(nccl_version, version);
  if (IsAsked("old-nccl")) *version = 22707;
  return code;
}

void* Between(const char* name, void* real);

// The runtime asks cuGetProcAddress for itself, too. Since CUDA 12.0 that is what
// cuGetProcAddress_v2 is for others.
void Replace(const char* name, int version, void** found) {
  const bool second = std::strcmp(name, "cuGetProcAddress") == 0 && version >= 12000;
  *found = Between(second ? "cuGetProcAddress_v2" : name, *found);
}
int ProcAddress2(const char* name, void** found, int version, uint64_t flags, void* status) {
  const int code = Call(proc_address_2, name, found, version, flags, status);
  if (code == kSuccess) Replace(name, version, found);
  return code;
}
int ProcAddress(const char* name, void** found, int version, uint64_t flags) {
  const int code = Call(proc_address, name, found, version, flags);
  if (code == kSuccess) Replace(name, version, found);
  return code;
}

struct Entry {
  const char* name;
  void* ours;
  Real& real;
};
template <typename F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}
const Entry kEntries[] = {
    {"cuGetProcAddress_v2", Address(ProcAddress2), proc_address_2},
    {"cuGetProcAddress", Address(ProcAddress), proc_address},
    {"cuGraphLaunch", Address(GraphLaunch), graph_launch},
    {"cuLaunchKernelEx", Address(KernelLaunch), kernel_launch},
    {"cuEventQuery", Address(EventQuery), event_query},
    {"cuStreamQuery", Address(StreamQuery), stream_query},
    {"cuMemGetInfo", Address(MemoryInfo), memory_info},
    {"cuMemGetInfo_v2", Address(MemoryInfo), memory_info},
    {"cuMemAlloc", Address(Allocate), allocate},
    {"cuMemAlloc_v2", Address(Allocate), allocate},
    {"cuDriverGetVersion", Address(DriverVersion), driver_version},
    {"cuDeviceGetAttribute", Address(DeviceAttribute), device_attribute},
    {"cuDeviceGetName", Address(DeviceName), device_name},
    {"nvmlDeviceGetHandleByUUID", Address(NvmlByUuid), nvml_by_uuid},
    {"ncclGetVersion", Address(NcclVersion), nccl_version},
};

// What stands in front of `real`; itself where nothing does.
void* Between(const char* name, void* real) {
  if (real == nullptr || name == nullptr || TheAsked().fault[0] == 0) return real;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) != 0) continue;
    if (real != entry.ours) entry.real = real;
    return entry.ours;
  }
  return real;
}

bool IsBetween(const char* name) {
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) == 0) return true;
  }
  return false;
}

}  // namespace

// Calls of others go on as they are: with RTLD_NEXT the caller's address counts.
extern "C" __attribute__((visibility("default"), optimize("O2"))) void* dlsym(void* handle,
                                                                              const char* name) {
  if (!IsBetween(name)) return FindReal(handle, name);
  return Between(name, FindReal(handle, name));
}
