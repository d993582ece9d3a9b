#include "kernels/cuda/resources.h"

#include <cuda_runtime_api.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/precise_timers.h"
#include "base/units.h"
#include "kernels/cuda/cuda_status.h"

namespace skein::kernels::cuda {
namespace {

// Between two looks at an event. At first the core is kept: a short step is over before a sleep
// would be.
constexpr absl::Duration kSpin = absl::Microseconds(50);
constexpr absl::Duration kNap = absl::Microseconds(20);

cudaEvent_t Event(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, const char* what) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", FormatBytes(bytes), " of the GPU's memory for ", what, ": ",
                     FormatBytes(static_cast<int64_t>(free)), " of ",
                     FormatBytes(static_cast<int64_t>(total)), " are free"));
  }
  SKEIN_RETURN_IF_ERROR(CudaStatus(code, absl::StrCat("cudaMalloc for ", what)));
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaMemset(data, 0, static_cast<size_t>(bytes)));
  // Streams of our own do not wait for the one that this ran on.
  SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(int64_t bytes, const char* what) {
  PinnedMemory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  const cudaError_t code = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", FormatBytes(bytes), " of pinned host memory for ", what));
  }
  SKEIN_RETURN_IF_ERROR(CudaStatus(code, absl::StrCat("cudaHostAlloc for ", what)));
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

OwnedStream::~OwnedStream() {
  if (stream_.handle != nullptr) cudaStreamDestroy(CudaStream(stream_));
}

absl::StatusOr<OwnedStream> OwnedStream::Create() {
  OwnedStream stream;
  cudaStream_t handle = nullptr;
  SKEIN_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  stream.stream_.handle = handle;
  return stream;
}

absl::Status OwnedStream::Synchronize() const {
  return CudaStatus(cudaStreamSynchronize(CudaStream(stream_)), "cudaStreamSynchronize");
}

OwnedEvent::~OwnedEvent() {
  if (event_ != nullptr) cudaEventDestroy(Event(event_));
}

absl::StatusOr<OwnedEvent> OwnedEvent::Create(bool timed) {
  OwnedEvent event;
  cudaEvent_t handle = nullptr;
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaEventCreateWithFlags(&handle, timed ? cudaEventDefault : cudaEventDisableTiming));
  event.event_ = handle;
  return event;
}

absl::Status OwnedEvent::Record(Stream stream) {
  return CudaStatus(cudaEventRecord(Event(event_), CudaStream(stream)), "cudaEventRecord");
}

absl::StatusOr<bool> OwnedEvent::Done() const {
  const cudaError_t code = cudaEventQuery(Event(event_));
  if (code == cudaErrorNotReady) return false;
  SKEIN_RETURN_IF_ERROR(CudaStatus(code, "cudaEventQuery"));
  return true;
}

absl::Status OwnedEvent::Synchronize() const {
  return CudaStatus(cudaEventSynchronize(Event(event_)), "cudaEventSynchronize");
}

absl::StatusOr<bool> OwnedEvent::Await(absl::Time deadline,
                                       absl::FunctionRef<absl::Status()> between) const {
  const absl::Time begin = absl::Now();
  while (true) {
    SKEIN_ASSIGN_OR_RETURN(const bool done, Done());
    if (done) return true;
    SKEIN_RETURN_IF_ERROR(between());
    const absl::Time now = absl::Now();
    if (now >= deadline) return false;
    if (now - begin < kSpin) {
      std::this_thread::yield();
    } else {
      LetTimersBePrecise();
      absl::SleepFor(kNap);
    }
  }
}

absl::StatusOr<float> OwnedEvent::MillisecondsSince(const OwnedEvent& begin) const {
  float milliseconds = 0;
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaEventElapsedTime(&milliseconds, Event(begin.event_), Event(event_)));
  return milliseconds;
}

absl::Status OwnedEvent::Delay(Stream stream) const {
  return CudaStatus(cudaStreamWaitEvent(CudaStream(stream), Event(event_), 0),
                    "cudaStreamWaitEvent");
}

OwnedGraph::~OwnedGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}

absl::StatusOr<OwnedGraph> OwnedGraph::Capture(Stream stream,
                                               absl::FunctionRef<absl::Status()> enqueue) {
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaStreamBeginCapture(CudaStream(stream), cudaStreamCaptureModeThreadLocal));
  const absl::Status enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  const absl::Status captured =
      CudaStatus(cudaStreamEndCapture(CudaStream(stream), &graph), "cudaStreamEndCapture");
  OwnedGraph owned;
  absl::Status status = enqueued.ok() ? captured : enqueued;
  if (status.ok()) {
    cudaGraphExec_t executable = nullptr;
    status = CudaStatus(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    owned.graph_ = executable;
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  SKEIN_RETURN_IF_ERROR(status);
  // What it needs of the device's memory is taken here, and not at its first launch.
  SKEIN_CUDA_RETURN_IF_ERROR(
      cudaGraphUpload(static_cast<cudaGraphExec_t>(owned.graph_), CudaStream(stream)));
  return owned;
}

absl::Status OwnedGraph::Launch(Stream stream) const {
  return CudaStatus(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), CudaStream(stream)),
                    "cudaGraphLaunch");
}

}  // namespace skein::kernels::cuda
