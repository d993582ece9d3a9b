#include "kernels/cuda/cuda_peer_sums.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

class CudaPeerSums final : public PeerSums {
 public:
  CudaPeerSums(int device, int rank, int ranks) : device_(device) {
    op_.rank = rank;
    op_.ranks = ranks;
  }
  ~CudaPeerSums() override { Close(); }

  absl::Status Init() {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    // An allocation of its own: a handle opens all of one.
    SKEIN_ASSIGN_OR_RETURN(
        exchange_, DeviceMemory::Allocate(ExchangeBytes(op_.ranks), "sums over peer memory"));
    SKEIN_ASSIGN_OR_RETURN(turn_, DeviceMemory::Allocate(2 * sizeof(uint32_t), "peer sums"));
    SKEIN_ASSIGN_OR_RETURN(aborted_, PinnedMemory::Allocate(sizeof(uint32_t), "peer sums"));
    std::memset(aborted_.data(), 0, sizeof(uint32_t));
    op_.exchange[op_.rank] = exchange_.data();
    op_.turn = reinterpret_cast<uint32_t*>(turn_.data());
    op_.aborted = reinterpret_cast<const uint32_t*>(aborted_.data());
    SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceGetPCIBusId(handle_.gpu, sizeof(handle_.gpu), device_));
    return IpcStatus(cudaIpcGetMemHandle(&handle_.memory, exchange_.data()), "cudaIpcGetMemHandle");
  }

  std::string handle() const override {
    return {reinterpret_cast<const char*>(&handle_), sizeof(handle_)};
  }

  absl::Status Open(absl::Span<const std::string> handles) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    for (int rank = 0; rank < op_.ranks; ++rank) {
      if (rank == op_.rank) continue;
      Handle theirs;
      if (handles[rank].size() != sizeof(theirs)) {
        return absl::InternalError(absl::StrCat("rank ", rank, " gave no memory handle"));
      }
      std::memcpy(&theirs, handles[rank].data(), sizeof(theirs));
      theirs.gpu[sizeof(theirs.gpu) - 1] = 0;
      SKEIN_RETURN_IF_ERROR(CheckAccess(theirs.gpu));
      SKEIN_RETURN_IF_ERROR(IpcStatus(
          cudaIpcOpenMemHandle(&op_.exchange[rank], theirs.memory, cudaIpcMemLazyEnablePeerAccess),
          absl::StrCat("cudaIpcOpenMemHandle of rank ", rank, "'s memory")));
      opened_.push_back(op_.exchange[rank]);
    }
    return absl::OkStatus();
  }

  void Close() override {
    cudaSetDevice(device_);
    for (void* const theirs : opened_) cudaIpcCloseMemHandle(theirs);
    opened_.clear();
  }

  int64_t most_bytes() const override { return kMostPeerSumBytes; }
  bool Takes(const View& data) const override {
    return (data.dtype == DType::kF32 || data.dtype == DType::kBF16) && data.bytes() % 8 == 0 &&
           data.bytes() <= kMostPeerSumBytes && reinterpret_cast<uintptr_t>(data.data) % 8 == 0;
  }

  absl::Status Sum(View data, Stream stream) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    PeerSum op = op_;
    op.dtype = data.dtype;
    op.bytes = data.bytes();
    op.data = data.data;
    return Enqueue(op, stream);
  }

  void Abort() override {
    auto* const word = reinterpret_cast<uint32_t*>(aborted_.data());
    std::atomic_ref(*word).store(1, std::memory_order_release);
  }

 private:
  // Of a rank's memory, and the GPU that it is on.
  struct Handle {
    cudaIpcMemHandle_t memory;
    char gpu[32];  // its place on the PCI bus
  };

  // Containers may forbid it.
  static absl::Status IpcStatus(cudaError_t code, const std::string& what) {
    if (code == cudaSuccess) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA IPC is refused here: ", CudaStatus(code, what).message()));
  }
  // A GPU that this process does not see is left to CUDA IPC to refuse.
  absl::Status CheckAccess(const char* gpu) const {
    int other = 0;
    if (cudaDeviceGetByPCIBusId(&other, gpu) != cudaSuccess) {
      cudaGetLastError();  // it is no one else's
      return absl::OkStatus();
    }
    if (other == device_) return absl::OkStatus();
    int can = 0;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceCanAccessPeer(&can, device_, other));
    if (can != 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("no peer access between GPU ", device_, " and ", other));
  }

  const int device_;
  PeerSum op_;
  DeviceMemory exchange_;
  DeviceMemory turn_;
  PinnedMemory aborted_;
  Handle handle_ = {};
  std::vector<void*> opened_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PeerSums>> MakeCudaPeerSums(int device, int rank, int ranks) {
  if (ranks > kMostPeers) {
    return absl::UnimplementedError(
        absl::StrCat("sums over the memory of ", ranks, " GPUs; up to ", kMostPeers, " can"));
  }
  auto sums = std::make_unique<CudaPeerSums>(device, rank, ranks);
  SKEIN_RETURN_IF_ERROR(sums->Init());
  return sums;
}

}  // namespace skein::kernels::cuda
