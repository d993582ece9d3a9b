// What the persistent kernel takes: the operations of a step, and the batch.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/paged_batch.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/persistent/schedule.h"

namespace skein::kernels::cuda {

// A ScheduledOp, bound to a device's memory. The lanes of a warp load a word each, the last two of
// which are its block's share.
struct StepOp {
  int32_t kind = 0;  // ScheduledOp::Kind
  int32_t then = 0;  // ScheduledOp::Then
  // ArenaPlace; kNowhere of what is none.
  static constexpr uint32_t kNowhere = 0xffffffff;
  uint32_t in = 0, old = 0, out = 0, normed = 0, squares = 0, in_squares = 0;
  int32_t cols = 0;
  int32_t rows = 0;
  int32_t map = 0;  // of a product's weight
  int32_t of_normed = 0;
  const float* gain = nullptr;  // of `normed`, attention's of query heads; null: there is none
  // An embedding's table, a layer's cache, the port of logits.
  void* memory = nullptr;
  int32_t stride = 0;  // elements of `memory` from row to row
  float eps = 0;
  int32_t first_id = 0, count = 0;
  int32_t window = 0;
  float scale = 0;
  int32_t first_free_tile = 0;
  int32_t sum = -1;             // over shards: see ScheduledOp
  int32_t to_port = 0;          // likewise
  float factor = 1;             // of_normed: of what its rows' factors are to be multiplied by, too
  const float* bias = nullptr;  // of a product or a sum; null: there is none
  const float* k_gain = nullptr;         // attention's, of key heads
  int32_t first_tile = 0, end_tile = 0;  // not in memory: see PersistentStep::shares
};
static_assert(sizeof(StepOp) == 32 * sizeof(uint32_t));
inline constexpr int kStepOpWords = sizeof(StepOp) / sizeof(uint32_t);

// Of the host's memory: what the kernel tells, and is told.
struct StepReport {
  static constexpr uint32_t kNone = 0xffffffff;

  uint32_t aborted = 0;  // not 0: nobody waits any more, data are void
  // Of the wait that took too long, which has set `aborted`.
  uint32_t block = 0;
  uint32_t op = kNone;    // of the step
  uint32_t peer = kNone;  // the shard that was waited for, if it was one
};

// One launch. All memory but the report is the device's.
struct PersistentStep {
  const StepOp* ops = nullptr;  // [op_count]
  // [op_count][blocks + 1]: see Schedule::shares.
  const uint16_t* shares = nullptr;
  const CUtensorMap* maps = nullptr;
  int32_t op_count = 0;  // the last one is left out where nothing is wanted of it
  int32_t rows = 0;      // 1 to kMostStepRows
  int32_t outputs = 0;   // to be written to the logits
  // [given_count]: how many of an operation's free tiles were given out; and those of the next
  // step, which become zeros.
  int32_t given_count = 0;
  uint32_t* given = nullptr;
  uint32_t* idle_given = nullptr;
  // Exchanged vectors; all its words are 0xffffffff. The idle one, so far as it was used, becomes
  // so.
  char* arena = nullptr;
  char* idle_arena = nullptr;
  int64_t idle_bytes = 0;
  // Of attention: see exchange.cuh. Its number of an operation is epoch + that in `ops`, which
  // comes again after 2^32 of them: a part that was not written since would be taken for this
  // step's.
  char* parts = nullptr;
  uint32_t epoch = 0;
  PagedBatch batch;
  const int32_t* token_ids = nullptr;    // [rows]
  const int32_t* positions = nullptr;    // [rows]
  const int64_t* kv_slots = nullptr;     // [rows]: page * page_size + offset
  const int32_t* output_rows = nullptr;  // [outputs]
  AttentionHeads attention;
  KvLayer kv;                                  // of all layers, but for the data
  const float* inverse_frequencies = nullptr;  // [head_dim / 2]
  // Units on their way at once: within the operation that the block is at, and beyond it.
  int32_t in_flight = 0, in_flight_ahead = 0;
  StepReport* report = nullptr;
  uint64_t most_nanoseconds = 0;  // that anybody waits
  // Ports, [rows, cols]; null where there are none.
  const char* input = nullptr;
  char* output = nullptr;
  // Of shards, where the step has sums over them.
  int32_t sums = 0;
  PeerMemory peers;
};

}  // namespace skein::kernels::cuda
