// What a rank's micro-batches compute: the pages of its sequences, and the rows that a back end
// runs.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "worker/engine/step_order.h"

namespace skein::worker {

// Not thread-safe.
class InputBatches {
 public:
  struct Options {
    int64_t page_size = 0;
    bool embeds = false;      // the rank's Program looks tokens up
    bool has_logits = false;  // the rank's Program gives logits
    // The rank's pages, and where they are swapped to; null in a rank whose orders copy none.
    kernels::KvCache* kv = nullptr;
    kernels::KvCache* swap = nullptr;
  };

  explicit InputBatches(const Options& options) : options_(options) {}

  // Takes in which sequences ended and started, copies pages, and takes in page tables. Internal
  // for an order that contradicts itself or what came before.
  absl::Status Update(const StepOrder& order);

  // In the place of kSampledToken: the token that the sequence's last sampling chunk gave.
  using NewestToken = absl::FunctionRef<absl::StatusOr<int32_t>(SequenceId)>;
  // The rows of one micro-batch; valid until the next call, which reuses their memory. Internal for
  // positions without pages; otherwise what `newest` returned.
  absl::StatusOr<kernels::Batch> Fill(const std::vector<ChunkOrder>& chunks, NewestToken newest);

 private:
  using Pages = std::vector<int32_t>;

  absl::StatusOr<Pages*> Find(SequenceId id);
  absl::Status Copy(const std::vector<PageCopy>& copies);
  absl::Status AddRows(const ChunkOrder& chunk, const Pages& pages, NewestToken newest);

  const Options options_;
  std::unordered_map<SequenceId, Pages> pages_;

  std::vector<int32_t> token_ids_, positions_, row_begin_, context_lengths_, page_table_;
  std::vector<int32_t> output_rows_;
  std::vector<int64_t> kv_slots_;
};

}  // namespace skein::worker
