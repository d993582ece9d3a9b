// Keeps the state that a host back end has of its sequences, by slot, and writes a batch out as it
// is computed: every row with its token, its position and its place in the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops/batch.h"

namespace skein::kernels {

// A batch as it is computed. Valid until the slots change.
struct HostBatch {
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t sequences() const { return static_cast<int64_t>(slots.size()); }
  int64_t outputs() const { return static_cast<int64_t>(output_rows.size()); }
  // Returns the pages of a sequence, by position / page_size.
  const int32_t* pages(int64_t sequence) const {
    return page_tables + slots[sequence] * page_table_stride;
  }

  std::vector<int32_t> token_ids;        // [rows]
  std::vector<int32_t> positions;        // [rows], from 0
  std::vector<int64_t> kv_slots;         // [rows]: page * page_size + offset; empty without a cache
  std::vector<int32_t> slots;            // [sequences]
  std::vector<int32_t> row_begin;        // [sequences + 1]: first row of each sequence
  std::vector<int32_t> context_lengths;  // [sequences]: position of the last row + 1
  std::vector<int32_t> output_rows;      // [outputs]: the rows whose logits are wanted
  const int32_t* page_tables = nullptr;  // [slots of the executable, page_table_stride]
  int64_t page_table_stride = 0;
};

// Not thread-safe.
class SlotStates {
 public:
  // `page_size` is 0 where there is no cache.
  SlotStates(const Limits& limits, int64_t page_size);

  // Takes in starts and updates of a batch that obeys the rules (ValidateBatch). InvalidArgument
  // for pages that leave a hole. `taken_back` is told of every update that shortens its slot.
  absl::Status Update(
      const Batch& batch,
      absl::FunctionRef<void(const SlotUpdate&)> taken_back = [](const auto&) {});
  // Writes the batch's rows to `out`; the slots are longer by them from then on. InvalidArgument
  // for a slot that stands in the batch twice, has too few pages, or writes to a page that another
  // slot of the batch writes to.
  absl::Status Fill(const Batch& batch, HostBatch& out);

  // Takes back the last so many positions; their pages stay.
  void TakeBack(int32_t slot, int64_t positions) { states_[slot].length -= positions; }
  void SetToken(int32_t slot, int32_t token) { states_[slot].token = token; }
  int64_t length(int32_t slot) const { return states_[slot].length; }

 private:
  struct State {
    int64_t length = 0;
    int64_t pages = 0;
    int32_t token = 0;
    int64_t last_fill = 0;  // the last Fill that it stood in
  };

  void SetLength(const SlotUpdate& update, absl::FunctionRef<void(const SlotUpdate&)> taken_back);
  absl::Status NotePages(const BatchSequence& sequence, int64_t begin, int64_t end);
  absl::Status AddRows(const BatchSequence& sequence, HostBatch& out);

  const int64_t page_size_;
  const int64_t stride_;
  std::vector<State> states_;
  std::vector<int32_t> page_tables_;  // [slots, stride]
  std::vector<int64_t> written_in_;   // [pages that were written]: the last Fill that did
  int64_t fills_ = 0;
};

}  // namespace skein::kernels
