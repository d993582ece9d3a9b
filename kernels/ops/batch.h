// What one run of a Program works on: rows of tokens and where their keys and values live.
// Lengths and page tables are data, so that a captured graph can be replayed with others.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace skein::kernels {

// Rows are the step's tokens, sequence by sequence, each sequence's in order of position: a
// prefill chunk has several rows, a decoding sequence has one. Borrowed; valid during Run.
struct Batch {
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t sequences() const { return static_cast<int64_t>(context_lengths.size()); }
  int64_t outputs() const { return static_cast<int64_t>(output_rows.size()); }

  absl::Span<const int32_t> token_ids;  // [rows]; empty on a rank without the embedding
  absl::Span<const int32_t> positions;  // [rows], from 0
  absl::Span<const int64_t> kv_slots;   // [rows]: page * page_size + offset in the page
  absl::Span<const int32_t> row_begin;  // [sequences + 1]: first row of each sequence
  // [sequences]: slots filled once this batch is written: position of the last row + 1.
  absl::Span<const int32_t> context_lengths;
  absl::Span<const int32_t> page_table;  // [sequences, page_table_stride], page ids
  int64_t page_table_stride = 0;
  absl::Span<const int32_t> output_rows;  // [outputs]: the rows whose logits are wanted
};

}  // namespace skein::kernels
