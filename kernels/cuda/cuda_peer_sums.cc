#include "kernels/cuda/cuda_peer_sums.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_library.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/resources.h"

namespace skein::kernels::cuda {
namespace {

class CudaPeerSums final : public PeerSums {
 public:
  CudaPeerSums(int device, int rank, int ranks) : device_(device) {
    memory_.rank = rank;
    memory_.ranks = ranks;
    memory_.one_shot_bytes = OneShotBytes(ranks);
  }
  ~CudaPeerSums() override { Close(); }

  absl::Status Init() {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    // An allocation of its own: a handle opens all of one.
    SKEIN_ASSIGN_OR_RETURN(exchange_,
                           DeviceMemory::Allocate(kExchangeBytes, "sums over peer memory"));
    SKEIN_RETURN_IF_ERROR(ClearExchange(exchange_.data()));
    SKEIN_ASSIGN_OR_RETURN(turn_, DeviceMemory::Allocate(sizeof(PeerTurn), "peer sums"));
    SKEIN_ASSIGN_OR_RETURN(report_, PinnedMemory::Allocate(sizeof(PeerReport), "peer sums"));
    memory_.exchange[memory_.rank] = exchange_.data();
    memory_.turn = reinterpret_cast<PeerTurn*>(turn_.data());
    memory_.report = new (report_.data()) PeerReport;
    SKEIN_CUDA_RETURN_IF_ERROR(cudaDeviceGetPCIBusId(handle_.gpu, sizeof(handle_.gpu), device_));
    return IpcStatus(cudaIpcGetMemHandle(&handle_.memory, exchange_.data()), "cudaIpcGetMemHandle");
  }

  std::string handle() const override {
    return {reinterpret_cast<const char*>(&handle_), sizeof(handle_)};
  }

  absl::Status Open(absl::Span<const std::string> handles) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    for (int rank = 0; rank < memory_.ranks; ++rank) {
      if (rank == memory_.rank) continue;
      Handle theirs;
      if (handles[rank].size() != sizeof(theirs)) {
        return absl::InternalError(absl::StrCat("rank ", rank, " gave no memory handle"));
      }
      std::memcpy(&theirs, handles[rank].data(), sizeof(theirs));
      theirs.gpu[sizeof(theirs.gpu) - 1] = 0;
      SKEIN_RETURN_IF_ERROR(CheckAccess(theirs.gpu));
      SKEIN_RETURN_IF_ERROR(
          IpcStatus(cudaIpcOpenMemHandle(&memory_.exchange[rank], theirs.memory,
                                         cudaIpcMemLazyEnablePeerAccess),
                    absl::StrCat("cudaIpcOpenMemHandle of rank ", rank, "'s memory")));
      opened_.push_back(memory_.exchange[rank]);
    }
    return absl::OkStatus();
  }

  void Close() override {
    cudaSetDevice(device_);
    for (void* const theirs : opened_) cudaIpcCloseMemHandle(theirs);
    opened_.clear();
  }

  int64_t most_bytes() const override { return kMostPeerSumBytes; }
  int64_t most_one_shot_bytes() const override { return MostOneShotBytes(memory_.ranks); }
  void set_one_shot_bytes(int64_t bytes) override { memory_.one_shot_bytes = bytes; }
  bool Takes(const View& data) const override {
    const bool floats =
        data.dtype == DType::kF32 || data.dtype == DType::kBF16 || data.dtype == DType::kF16;
    return floats && data.bytes() % 8 == 0 && data.bytes() <= kMostPeerSumBytes &&
           reinterpret_cast<uintptr_t>(data.data) % 8 == 0;
  }

  int64_t memory_bytes() const override { return kExchangeBytes; }
  absl::Status CopyToNext(Stream stream) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    void* const to = memory_.exchange[(memory_.rank + 1) % memory_.ranks];
    return CudaStatus(cudaMemcpyAsync(to, exchange_.data(), kExchangeBytes,
                                      cudaMemcpyDeviceToDevice, CudaStream(stream)),
                      "cudaMemcpyAsync to the next rank");
  }

  absl::Status Sum(View data, Stream stream, Shots shots) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    return Enqueue(PeerSum{.memory = memory_,
                           .dtype = data.dtype,
                           .bytes = data.bytes(),
                           .data = data.data,
                           .shots = shots},
                   stream);
  }

  absl::Status BeginStep(int64_t step, uint32_t order, Stream stream) override {
    SKEIN_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
    return Enqueue(
        BeginPeerStep{.turn = memory_.turn, .step = static_cast<uint32_t>(step), .order = order},
        stream);
  }

  const PeerMemory& memory() const override { return memory_; }

  std::optional<Wait> Waiting() const override {
    PeerReport& report = *memory_.report;
    Wait wait;
    for (int rank = 0; rank < memory_.ranks; ++rank) {
      if (Read(report.late[rank]) != 0) wait.ranks.push_back(rank);
    }
    if (wait.ranks.empty()) return std::nullopt;
    wait.sum = Describe(report.waits);
    return wait;
  }

  std::optional<Disagreement> Disagrees() const override {
    PeerReport& report = *memory_.report;
    for (int rank = 0; rank < memory_.ranks; ++rank) {
      if (Read(report.wrong[rank]) == 0) continue;
      return Disagreement{
          .rank = rank, .expected = Describe(report.own), .seen = Describe(report.theirs[rank])};
    }
    return std::nullopt;
  }

  void Abort() override {
    std::atomic_ref(memory_.report->aborted).store(1, std::memory_order_release);
  }

 private:
  // Of a rank's memory, and the GPU that it is on.
  struct Handle {
    cudaIpcMemHandle_t memory;
    char gpu[32];  // its place on the PCI bus
  };

  // Of a word that the device writes.
  static uint32_t Read(uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
  }
  static std::string Describe(PeerSumHead& head) {
    const uint32_t size = Read(head.size);
    return absl::StrFormat(
        "sum %d of step %d (%d bytes of %s, order %08x)", Read(head.sum), Read(head.step),
        size & 0xffffff, std::string(DTypeName(static_cast<DType>(size >> 24))), Read(head.order));
  }

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
  PeerMemory memory_;
  DeviceMemory exchange_;
  DeviceMemory turn_;
  PinnedMemory report_;
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
