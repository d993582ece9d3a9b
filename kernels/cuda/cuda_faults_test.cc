// What becomes of CUDA's errors, by injection.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "base/view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/fake_cuda.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CudaFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda() = {}; }
  void Inject(const std::string& function, cudaError_t code) { fake_cuda().codes[function] = code; }
};

TEST_F(CudaFaultsTest, ADriverThatIsTooOldIsRefusedWithBothVersions) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> uuids, ListCudaDevices());
  EXPECT_THAT(uuids, ElementsAre("00112233445566778899aabbccddeeff"));
  Inject("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  fake_cuda().driver = 12040;
  EXPECT_THAT(ListCudaDevices().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("driver supports CUDA 12.4; this was built for 13."),
                             HasSubstr("install a newer driver"))));
  fake_cuda().driver = 0;  // there is none
  EXPECT_THAT(*ListCudaDevices(), IsEmpty());
}

TEST_F(CudaFaultsTest, AGpuThatIsGoneOrTakenIsNoCpuInSilence) {
  Inject("cudaGetDeviceCount", cudaErrorSystemNotReady);
  EXPECT_EQ(ListCudaDevices().status().code(), absl::StatusCode::kUnavailable);
  SetUp();
  Inject("cudaMemGetInfo", cudaErrorDevicesUnavailable);
  EXPECT_THAT(DescribeCudaDevice(0).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("cudaErrorDevicesUnavailable"),
                             HasSubstr("another process may have it for itself"))));
}

TEST_F(CudaFaultsTest, ACardIsFoundByItsAddress) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const CudaDevice device, DescribeCudaDevice(0));
  EXPECT_EQ(device.name, "NVIDIA H200");
  EXPECT_EQ(device.pci_address, "0000:9A:00.0");
}

TEST_F(CudaFaultsTest, ACardWithoutKernelsIsNamed) {
  fake_cuda().major = 8;
  SKEIN_EXPECT_OK(DescribeCudaDevice(0).status());
  fake_cuda().name = "Tesla V100-SXM2-16GB";
  fake_cuda().major = 7;
  EXPECT_THAT(DescribeCudaDevice(0).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("Tesla V100-SXM2-16GB"), HasSubstr("use --device=cpu"))));
  fake_cuda().name = "NVIDIA L4";
  fake_cuda().major = 8;
  fake_cuda().shared_bytes = size_t{99} << 10;
  EXPECT_THAT(DescribeCudaDevice(0).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("NVIDIA L4"), HasSubstr("99.0 KiB of shared memory"))));
}

TEST_F(CudaFaultsTest, MemoryThatHasGoneIsToldInNumbers) {
  fake_cuda().free = size_t{3} << 30;
  Inject("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_THAT(DeviceMemory::Allocate(int64_t{8} << 30, "weights").status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "no 8.00 GiB of the GPU's memory for weights: 3.00 GiB of 140.00 GiB are "
                       "free"));
  Inject("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT_THAT(PinnedMemory::Allocate(int64_t{8} << 30, "logits").status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "no 8.00 GiB of pinned host memory for logits"));
}

struct Fault {
  cudaError_t code;
  const char* name;
  const char* consequence;
};
constexpr Fault kFaults[] = {
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "can use its GPU no more"},
    {cudaErrorAssert, "cudaErrorAssert", "can use its GPU no more"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "its Xid"},
    {cudaErrorHardwareStackError, "cudaErrorHardwareStackError", "its Xid"},
};

// Sticky errors come out of whatever looks at the device next; a wait ends with them at once.
TEST_F(CudaFaultsTest, AFaultEndsEveryWaitAndSaysWhatFollows) {
  for (const auto& [code, name, consequence] : kFaults) {
    SetUp();
    const auto tells =
        StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr(name), HasSubstr(consequence)));
    SKEIN_ASSERT_OK_AND_ASSIGN(OwnedEvent event, OwnedEvent::Create());
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto events, MakeCudaEvents(0));
    SKEIN_ASSERT_OK_AND_ASSIGN(const int point, events->Record({}));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto copies, MakeCudaCopies(0));
    fake_cuda().looks = 3;
    Inject("cudaEventQuery", code);
    int between = 0;
    const auto go_on = [&] {
      ++between;
      return absl::OkStatus();
    };
    EXPECT_THAT(event.Await(absl::InfiniteFuture(), go_on).status(), tells);
    EXPECT_EQ(between, 3);
    EXPECT_THAT(events->Done(point).status(), tells);
    float from = 1, to = 0;
    EXPECT_THAT(
        copies->ToHost({&from, DType::kF32, 1, 1}, reinterpret_cast<std::byte*>(&to), {}, go_on),
        tells);
    Inject("cudaGraphLaunch", code);
    EXPECT_THAT(OwnedGraph().Launch({}), tells);
    Inject("cudaStreamSynchronize", code);
    EXPECT_THAT(OwnedStream().Synchronize(), tells);
  }
  EXPECT_THAT(CudaStatus(cudaErrorInvalidValue, "f").message(), Not(HasSubstr(";")));
}

}  // namespace
}  // namespace skein::kernels::cuda
