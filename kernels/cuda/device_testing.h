// What tests and benchmarks of kernels share: memory of the device, random numbers, comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// Whether there is a device that these kernels run on. Fails where there may be one, in disorder.
absl::StatusOr<bool> HasGpu();
int32_t Multiprocessors();
// What the clocks of device 0 let it do: bytes a second that its memory passes, and dense BF16
// operations a second of its tensor cores.
double MemoryPeak();
double ProductPeak();

// Memory of device 0 that no process has, as NVML tells it, before CUDA is used, too; as CUDA does
// where there is no NVML.
absl::StatusOr<int64_t> FreeMemoryBytes();

// Ends the program with the status' message unless it is OK: a test cannot go on.
void Require(const absl::Status& status);

// A device's memory. Every byte is 0xff at first: NaN in all floating-point dtypes, -1 as an id.
class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes);
  ~DeviceBytes();
  DeviceBytes(DeviceBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBytes& operator=(DeviceBytes&&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void Poison();
  void Upload(const void* from, int64_t bytes);
  // After all that the device was given.
  void Download(void* to, int64_t bytes) const;

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Values that the device has.
template <typename T>
class DeviceArray : public DeviceBytes {
 public:
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceBytes(static_cast<int64_t>(values.size() * sizeof(T))) {
    Upload(values.data(), bytes());
  }
  T* get() const { return static_cast<T*>(data()); }
};

// Floats in a dtype, as a host sees them.
DeviceBytes Encoded(DType dtype, const std::vector<float>& values);
std::vector<float> Decoded(DType dtype, const DeviceBytes& memory);

// What the dtype keeps.
std::vector<float> Rounded(DType dtype, std::vector<float> values);
// Half of the distance between neighbours, relative; and the least absolute error (f16 has few
// small numbers).
double UnitRoundoff(DType dtype);
double LeastError(DType dtype);

// `count` reproducible numbers, uniform in [-scale, scale), each one that dtype keeps.
std::vector<float> RandomValues(uint32_t seed, int64_t count, DType dtype, float scale = 1.0f);

// A stream of the current device.
class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator Stream() const { return stream_; }  // NOLINT(google-explicit-constructor)
  // Waits for all of it; fails where a kernel did.
  absl::Status Finish() const;

 private:
  Stream stream_;
};

}  // namespace skein::kernels::cuda

// First in a test that needs a device.
#define SKEIN_NEED_GPU()                                                  \
  {                                                                       \
    const auto skein_has_gpu = ::skein::kernels::cuda::HasGpu();          \
    ASSERT_TRUE(skein_has_gpu.ok()) << skein_has_gpu.status().ToString(); \
    if (!*skein_has_gpu) GTEST_SKIP() << "no GPU";                        \
  }                                                                       \
  static_assert(true)

// First in a test of what Hopper's form of the kernels alone has (forms.h).
#define SKEIN_NEED_HOPPER()                                                       \
  SKEIN_NEED_GPU();                                                               \
  {                                                                               \
    if (!::skein::kernels::cuda::HopperForms()) GTEST_SKIP() << "no Hopper form"; \
  }                                                                               \
  static_assert(true)
