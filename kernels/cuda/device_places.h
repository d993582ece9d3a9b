// Where everything that a CUDA executable works in lies in one piece of the device's memory, and
// how many bytes weights and pages take. Pure: the planner asks without a device.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"
#include "kernels/packing/layout.h"

namespace skein::kernels::cuda {

// Of the chips that kernels are made for. What plans count is for so many.
inline constexpr int32_t kHopperMultiprocessors = 132;

// What a process takes of a GPU beside DevicePlaces, weights and pages, as NVML tells it of an H200
// with driver 580 and CUDA 13.0: the context; then the kernels, cuBLASLt and what it loads as
// products are tuned, and the rest of the pieces of 2 MiB in which CUDA allocates.
inline constexpr int64_t kContextBytes = int64_t{524} << 20;
inline constexpr int64_t kLibraryBytes = int64_t{32} << 20;

// What cuBLASLt asks for on Hopper.
inline constexpr int64_t kBlasWorkspaceBytes = int64_t{32} << 20;

// InvalidArgument for more slots, or entries of page tables, than kernels can number.
absl::Status CheckLimits(const Limits& limits);

// Bytes of a weight, padding included: matrices row by row as they come, vectors as F32.
int64_t DeviceBytes(const WeightSpec& spec);

// Bytes of one page of a cache in one layer: keys and values (kv_layout.h).
int64_t PageBytes(const KvSpec& spec);

// The rows of captured graphs, ascending: of batches in which every row is its sequence's only one,
// and an output. A batch is padded to the next one.
std::vector<int32_t> GraphRows(const Limits& limits);

// Bytes of all captured graphs of a Program, as measured in the same way.
int64_t GraphBytes(const Program& program, const Limits& limits);

// What a rank's end of sums over peer memory takes beside all that; 0 where so many ranks make
// none.
int64_t PeerSumBytes(int ranks);

// What one batch brings to slots beside its upload, without waiting for the device.
inline constexpr int64_t kPutDownBytes = int64_t{512} << 10;

// Bytes of the host's memory that an executable pins, swapped pages aside.
struct PinnedSizes {
  int64_t uploads = 0;  // of all batches
  int64_t drawn = 0, made = 0, masks = 0, put_down = 0, logits = 0;
  int64_t pooled = 0;  // of all batches

  int64_t sum() const { return uploads + drawn + made + masks + put_down + logits + pooled; }
};
PinnedSizes PinnedBy(const Program& program, const Limits& limits);

// Rows of logits that shards exchange at once.
inline constexpr int64_t kSampledAtOnce = 32;

// Floats of all shards' candidates for a batch's greedy draws: DrawCandidate, [shards, draws].
int64_t CandidateFloats(const Program& program, const Limits& limits);
// The most floats that shards sum up at once to draw: those, or rows of the vocabulary. 0 where
// this shard has all logits, or none.
int64_t DrawFloats(const Program& program, const Limits& limits);

// In bytes from the begin.
struct DevicePlaces {
  // [batches][buffers]; batches share all but input and output.
  std::array<std::vector<int64_t>, Executable::kBatches> buffers;
  // Of the batch that runs; see PrepareBatch.
  int64_t token_ids = 0, positions = 0, kv_slots = 0, row_begin = 0, slots = 0, output_rows = 0;
  // By slot.
  int64_t lengths = 0, page_tables = 0, newest_tokens = 0;
  // By slot, for draws that are made here from whole rows: see SlotMemory.
  int64_t histories = 0, history_stride = 0, lists = 0, breakers = 0, mus = 0;
  // What was uploaded of each batch, upload_bytes at most.
  std::array<int64_t, Executable::kBatches> uploads = {};
  int64_t upload_bytes = 0;
  // Of draws that take the most likely token: see GreedyDraws.
  int64_t best = 0, arrived = 0;
  // Of shards: see JoinGreedyDraws; and rows of the whole vocabulary, gathered_stride apart.
  int64_t candidates = 0, gathered = 0, gathered_stride = 0;
  std::map<int32_t, int64_t> decode_plans;  // by window
  int64_t decode_partials = 0, blas_workspace = 0, stream_k_workspace = 0;
  // Of steps by one kernel: two arenas and parts of attention (persistent/schedule.h), for batches
  // of up to kMostStepRows rows, where the Program can be run so.
  int64_t step = 0;
  int64_t bytes = 0;
};
// `page_size`: positions of a page; 0 without a cache.
DevicePlaces PlaceOnDevice(const Program& program, const Limits& limits, int64_t page_size,
                           int32_t multiprocessors);

}  // namespace skein::kernels::cuda
