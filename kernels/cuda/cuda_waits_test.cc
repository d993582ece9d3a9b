// Waits for a GPU: what they wait for, what ends them, and what an error says.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/busy_kernel.h"
#include "kernels/cuda/copy_page.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/failing_kernel.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(CudaBackendTest, DrawsWaitForMasksAndAbortsAreHeard) {
  Executable& executable = gpu_->executable();
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  const auto masked = [&] {
    Batch batch = Decode({0}, kNewestToken);
    batch.sequences[0].masked = true;
    executable.batch(0) = batch;
    return *executable.Enqueue(0);
  };
  Ticket ticket = masked();
  SKEIN_ASSERT_OK_AND_ASSIGN(
      bool over, executable.Wait(ticket, kHostStream, absl::Now() + absl::Milliseconds(50)));
  EXPECT_FALSE(over);
  std::vector<uint32_t> bits(MaskWords(kVocabulary));
  bits[123 / 32] = uint32_t{1} << (123 % 32);
  executable.SetMask(0, 0, bits);
  SKEIN_ASSERT_OK_AND_ASSIGN(over, executable.Wait(ticket, kHostStream, absl::InfiniteFuture()));
  EXPECT_TRUE(over);
  EXPECT_EQ(executable.result(0).sampled.at(0).tokens.at(0).id, 123);
  ticket = masked();
  executable.Abort(absl::UnavailableError("a peer is gone"));
  EXPECT_THAT(executable.Wait(ticket, kHostStream, absl::InfiniteFuture()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a peer is gone")));
  executable.batch(1) = Decode({0}, 1);
  EXPECT_THAT(executable.Enqueue(1).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a peer")));
}

// What it sent arrives also where the receiver needs its help.
TEST_F(CudaBackendTest, AWaitHelpsOnWhatWasSent) {
  class Helped final : public Collectives {
   public:
    absl::Status AllReduce(View, Stream) override { return absl::OkStatus(); }
    absl::Status AllGather(ConstView, View, Stream) override { return absl::OkStatus(); }
    absl::Status Progress() override {
      return ++calls < 100 ? absl::OkStatus() : absl::UnavailableError("a receiver is gone");
    }
    int calls = 0;
  } helped;
  Layer layer(*MakeCudaBackend({.decode = DecodeForm::kGraph}), &helped);
  helped.calls = 0;
  Batch batch = Start(0, 5, 10);
  batch.sequences[0].masked = true;
  layer.executable().batch(0) = batch;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket, layer.executable().Enqueue(0));
  EXPECT_THAT(layer.executable().Wait(ticket, kHostStream, absl::InfiniteFuture()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a receiver is gone")));
}

TEST_F(CudaBackendTest, ACopyThatIsWaitedForCanBeGivenUp) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto copies, MakeCudaCopies(0));
  SKEIN_ASSERT_OK_AND_ASSIGN(const absl::Span<std::byte> host, copies->Buffer(64));
  const cuda::DeviceBytes device(64);
  const cuda::OwnStream stream;
  absl::Notification go_on;
  ASSERT_EQ(cudaLaunchHostFunc(
                static_cast<cudaStream_t>(Stream(stream).handle),
                [](void* held) { static_cast<absl::Notification*>(held)->WaitForNotification(); },
                &go_on),
            cudaSuccess);
  const View view = {device.data(), DType::kU8, 1, 64};
  int looks = 0;
  const auto give_up = [&]() -> absl::Status {
    return ++looks < 10 ? absl::OkStatus() : absl::UnavailableError("a peer is gone");
  };
  EXPECT_THAT(copies->ToDevice(host.data(), view, stream, give_up),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a peer is gone")));
  go_on.Notify();
  SKEIN_ASSERT_OK(stream.Finish());
  host[5] = std::byte{9};
  SKEIN_ASSERT_OK(copies->ToDevice(host.data(), view, stream, [] { return absl::OkStatus(); }));
  host[5] = std::byte{0};
  SKEIN_ASSERT_OK(copies->ToHost(view, host.data(), stream, [] { return absl::OkStatus(); }));
  EXPECT_EQ(host[5], std::byte{9});
}

// A hop of one batch holds up no other one.
TEST_F(CudaBackendTest, ABatchWaitsForItsOwnExchangesAlone) {
  Executable& executable = gpu_->executable();
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10)));
  SKEIN_ASSERT_OK(gpu_->Run(Start(1, 5, 20), 1));
  // Copies for about a second, by an engine that batches do not use.
  constexpr int64_t kCopied = int64_t{256} << 20;
  const cuda::DeviceBytes device(kCopied);
  void* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, kCopied), cudaSuccess);
  const cuda::OwnStream busy, idle;
  auto* const stream = static_cast<cudaStream_t>(Stream(busy).handle);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(cudaMemcpyAsync(host, device.data(), kCopied, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
  }
  executable.After(0, busy);
  executable.After(0, idle);
  SKEIN_EXPECT_OK(gpu_->Run(Decode({1}, kNewestToken), 1));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  SKEIN_EXPECT_OK(gpu_->Run(Decode({0}, kNewestToken), 0));
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

// Another kernel keeps a multiprocessor, so that one block of the step cannot begin.
TEST_F(CudaBackendTest, AStepThatWaitsForItsOwnBlockIsGivenUp) {
  SKEIN_NEED_HOPPER();
  Layer layer(*MakeCudaBackend({.decode = DecodeForm::kPersistent}));
  SKEIN_ASSERT_OK(layer.Run(Start(0, 5, 10)));
  SKEIN_ASSERT_OK(layer.Run(Decode({0}, kNewestToken)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const cuda::PinnedMemory memory,
                             cuda::PinnedMemory::Allocate(sizeof(cuda::BusyWords), "words"));
  auto* const words = reinterpret_cast<cuda::BusyWords*>(memory.data());
  const cuda::OwnStream busy;
  SKEIN_ASSERT_OK(cuda::BeginBusy(words, busy));
  const absl::Time begin = absl::Now();
  const absl::Status late = layer.Run(Decode({0}, kNewestToken));
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kInternal,
                             AllOf(HasSubstr("a persistent step was given up: block "),
                                   HasSubstr(" waited too long in operation "))));
  EXPECT_GT(absl::Now() - begin, absl::Seconds(29));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(40));
  EXPECT_EQ(cudaStreamQuery(static_cast<cudaStream_t>(Stream(busy).handle)), cudaErrorNotReady);
  layer.executable().Abort(late);  // as an engine does
  words->over = 1;
  SKEIN_EXPECT_OK(busy.Finish());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // no kernel spins
}

// After one nothing in the process can use the GPU, so it has a process of its own.
void FailInAStep(absl::FunctionRef<absl::Status(Stream)> enqueue_failing) {
  Layer layer(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  Executable& executable = layer.executable();
  SKEIN_EXPECT_OK(layer.Run(CudaBackendTest::Start(0, 5, 10)));
  SKEIN_EXPECT_OK(executable.Health());
  const cuda::OwnStream stream;
  cuda::EnqueueFailing(/*fails=*/false, stream);
  SKEIN_EXPECT_OK(stream.Finish());
  executable.batch(0) = CudaBackendTest::Decode({0}, kNewestToken);
  executable.batch(0).step = 77;
  executable.batch(0).sequences[0].masked = true;  // under way until then
  const Ticket ticket = *executable.Enqueue(0);
  SKEIN_EXPECT_OK(enqueue_failing(stream));
  EXPECT_FALSE(stream.Finish().ok());
  const absl::Status health = executable.Health();
  const absl::Status waited =
      executable.Wait(ticket, kHostStream, absl::Now() + absl::Seconds(10)).status();
  executable.batch(1) = CudaBackendTest::Decode({0}, 1);
  executable.batch(1).step = 78;
  const absl::Status next = executable.Enqueue(1).status();
  std::fprintf(stderr, "%s; %s; %s\n", health.ToString().c_str(), waited.ToString().c_str(),
               next.ToString().c_str());
  std::_Exit(3);
}

TEST(CudaBackendDeathTest, AnErrorOfAKernelNamesTheStep) {
  SKEIN_NEED_GPU();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto copies_nowhere = [](Stream stream) {
    auto* const nowhere = reinterpret_cast<std::byte*>(16);  // there is no memory at this address
    return cuda::Enqueue(
        cuda::CopyPage{.from = nowhere, .to = nowhere, .layers = 1, .page_bytes = 16}, stream);
  };
  EXPECT_EXIT(
      FailInAStep(copies_nowhere), testing::ExitedWithCode(3),
      "step 77: .*or one before.*cudaErrorIllegalAddress.*"
      "step 77: 1 sequence of 1 row, the graph of 1: .*cudaErrorIllegalAddress.*can use its "
      "GPU no more.*step 78: .*cudaErrorIllegalAddress");
}

TEST(CudaBackendDeathTest, AnAssertionOnTheDeviceNamesTheStep) {
  SKEIN_NEED_GPU();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto asserts = [](Stream stream) {
    cuda::EnqueueFailing(/*fails=*/true, stream);
    return absl::OkStatus();
  };
  EXPECT_EXIT(FailInAStep(asserts), testing::ExitedWithCode(3),
              "step 77: .*or one before.*cudaErrorAssert.*"
              "step 77: 1 sequence of 1 row, the graph of 1: .*cudaErrorAssert.*step 78: "
              ".*cudaErrorAssert");
}

}  // namespace
}  // namespace skein::kernels
