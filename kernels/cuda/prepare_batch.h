// What a batch changes on the device, before it is computed: slots' state, and the arrays that
// kernels read of a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"
#include "kernels/cuda/batch_upload.h"

namespace skein::kernels::cuda {

// First the newest tokens that the batch before drew, then those that are set, are put down by
// slot; then entries of page tables, and lengths. Then the batch's arrays are filled, up to the
// padded counts: padding rows have token 0 and no place in the cache, padding sequences no rows,
// and padding outputs no row (-1).
struct PrepareBatch {
  BatchUpload upload;
  const std::byte* block = nullptr;  // on the device, 8-byte aligned
  const SetPair* drawn = nullptr;    // [drawn_count], also in the host's pinned memory
  int32_t drawn_count = 0;
  int32_t padded_rows = 0;  // at least the upload's counts, as the next two
  int32_t padded_sequences = 0;
  int32_t padded_outputs = 0;
  // By slot.
  int32_t* newest_tokens = nullptr;  // [slots]
  int32_t* lengths = nullptr;        // [slots]
  int32_t* page_tables = nullptr;    // [slots, pages of a slot]
  // Of the batch.
  int32_t* token_ids = nullptr;    // [padded_rows]
  int32_t* positions = nullptr;    // [padded_rows]
  int64_t* kv_slots = nullptr;     // [padded_rows]: page * page_size + offset, or -1
  int32_t* row_begin = nullptr;    // [padded_sequences + 1]
  int32_t* slots = nullptr;        // [padded_sequences]
  int32_t* output_rows = nullptr;  // [padded_outputs]
};

// One block: the steps follow each other. Costs some 3 us.
absl::Status Enqueue(const PrepareBatch& op, Stream stream);

}  // namespace skein::kernels::cuda
