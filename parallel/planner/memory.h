// The memory that a rank needs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "base/dtype.h"
#include "base/range.h"
#include "kernels/packing/layout.h"
#include "model/config/model_config.h"
#include "parallel/plan/held_pages.h"
#include "parallel/plan/plan.h"

namespace skein::plan {

// Limits that are the same for all ranks of a replica.
struct ReplicaLimits {
  int32_t tp_size = 1;
  int64_t context_length = 0;
  int32_t max_num_seqs = 0;
  int32_t max_micro_batch_rows = 0;
  int64_t page_size = 0;
  kernels::KvDType kv_dtype = kernels::KvDType::kF32;
  DType hop_dtype = DType::kF32;
  bool deterministic = false;
  bool exact = false;
  int64_t pages = 0;
  int64_t swap_pages = 0;
  DeviceKind device = DeviceKind::kCpu;  // of all ranks
  bool nccl = false, peers = false;      // see topology::Device
  // Of the job: they share the pages of program files. 1 where it is not known: each counts all.
  int32_t ranks_of_host = 1;
  int32_t ep_size = 1;
  int64_t window = 0;     // ModelConfig::LargestWindow
  int64_t step_rows = 1;  // of one sequence at most, over all micro-batches

  // Those of a plan for the model that was made for such devices.
  static ReplicaLimits Of(const Plan& plan, const model::ModelConfig& model,
                          const topology::Device& device);

  // Pages that the tokens of one sequence fill with a full context,
  int64_t context_pages() const { return (context_length + page_size - 1) / page_size; }
  // and the most of them that it holds at once: no replica has fewer.
  int64_t held_pages() const { return MostHeldPages(context_length, window, step_rows, page_size); }
};

// An allowance for what a worker takes besides weights, KV cache and activations: libraries,
// buffers of MPI and gRPC, and stacks. A rank of a small model that answered had 21 MiB alone, and
// 15 beside another one, with which it shared the pages of program files (scripts/memory.sh).
inline constexpr int64_t kProcessBytes = int64_t{24} << 20;
inline constexpr int64_t kProcessSharedBytes = int64_t{12} << 20;  // of these

// The part of a node's or a device's memory that ranks may take. The rest is for the page cache of
// the files being read and for other processes: free memory is a snapshot.
constexpr int64_t UsableBytes(int64_t memory_bytes) { return memory_bytes - memory_bytes / 8; }

// What NCCL takes of a device for a rank's first group, for each further one, for one in which it
// receives, and beside it for one that sums, which has channels for all that NVLink carries, and
// for each of its shards beyond two: as NVML tells it of two and four H200s with NVLink and NCCL
// 2.28 (scripts/memory.sh).
inline constexpr int64_t kNcclBytes = int64_t{500} << 20;
inline constexpr int64_t kNcclGroupBytes = int64_t{90} << 20;
inline constexpr int64_t kNcclReceiveBytes = int64_t{16} << 20;
inline constexpr int64_t kNcclSumBytes = int64_t{616} << 20;
inline constexpr int64_t kNcclShardBytes = int64_t{95} << 20;

// And where it computes on a GPU, of the host: what the driver and cuBLASLt keep there, and NCCL
// for a first group, for each further one and for sums. Ranks of a host share the pages of their
// files. As Pss of one and two ranks on H200s with driver 580.159.04 has it (scripts/memory.sh);
// what cuBLASLt loads differs by up to 25 MiB between models of other shapes. The staging of
// weights, up to 256 MiB, is not counted: it is gone before products are tuned, which take as much.
// Of it, what the driver pins for queues: 10 MiB for each of the 32 of comm::NcclEnvironment and 16
// more, where a process that sets none has 72.
inline constexpr int64_t kQueueBytes = int64_t{264} << 20;
inline constexpr int64_t kDriverBytes = (int64_t{487} << 20) + kQueueBytes;
inline constexpr int64_t kDriverSharedBytes = int64_t{80} << 20;  // of these
inline constexpr int64_t kNcclHostBytes = int64_t{420} << 20;
inline constexpr int64_t kNcclHostSharedBytes = int64_t{88} << 20;  // of these
inline constexpr int64_t kNcclHostGroupBytes = int64_t{35} << 20;
inline constexpr int64_t kNcclSumHostBytes = int64_t{20} << 20;

struct RankMemory {
  int64_t weight_bytes = 0;  // packed
  int64_t page_bytes = 0;    // one page of keys and values, in all layers
  int64_t kv_bytes = 0;
  int64_t swap_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t context_bytes = 0;  // see kernels::ProgramSizes
  int64_t graph_bytes = 0;
  int64_t exchange_bytes = 0;  // what NCCL and sums over peer memory take
  // Of the host's memory, where the device has its own.
  int64_t pinned_bytes = 0;
  int64_t driver_bytes = 0;
  int64_t program_bytes = 0;  // of the host's memory, too
  // Of both, what all ranks of a host share, whole. Each has its part of it in them.
  int64_t shared_bytes = 0;

  // Of a device that has its own memory.
  int64_t device_bytes() const {
    return weight_bytes + kv_bytes + activation_bytes + context_bytes + graph_bytes +
           exchange_bytes;
  }
  int64_t process_bytes() const { return pinned_bytes + driver_bytes + program_bytes; }
  int64_t total() const { return device_bytes() + swap_bytes + process_bytes(); }
};

// Sums the memory over the Program that such a rank builds. Errors are BuildRankProgram's and
// kernels::CheckLimits'.
absl::StatusOr<RankMemory> MemoryOfRank(const model::ModelConfig& model, int32_t shard,
                                        Range layers, const ReplicaLimits& limits);

// "47.99 GiB: weights 14.96 GiB, KV 32.00 GiB, buffers 80.2 MiB, context 556.0 MiB, graphs 15.9
// MiB, exchange 420.0 MiB": what a rank takes of its device.
std::string FormatDeviceMemory(const RankMemory& memory);

// Checks, before anything is loaded, that the device still has what a plan of `limits` counted on.
// ResourceExhausted says what is needed for what, what is free, and what would fit.
absl::Status CheckDeviceMemory(const RankMemory& memory, const ReplicaLimits& limits,
                               int64_t free_bytes);

}  // namespace skein::plan
