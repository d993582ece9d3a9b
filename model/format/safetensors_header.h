// The safetensors header.
//
//   offset  bytes  what
//   0       8      N, the header's length, unsigned, little-endian
//   8       N      JSON, beginning with '{', perhaps padded with spaces at its end:
//                    {"__metadata__": {"any": "string"},
//                     "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//   8 + N   rest   the tensors' elements, row-major, little-endian; data_offsets (begin, end) count
//                  from here
//
// The tensors fill the rest exactly: no two overlap, and no byte belongs to none. Both are errors,
// as in the format's reference implementation, since a hole can hide a second file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/format/file_source.h"

namespace skein::model {

inline constexpr int64_t kSafetensorsPrefixBytes = 8;

// N, from the file's first 8 bytes; at most 100 MB (the reference's limit) and within the file.
absl::StatusOr<int64_t> ParseSafetensorsPrefix(absl::Span<const std::byte> prefix,
                                               int64_t file_bytes);

// The tensors, sorted by name, of a file of `file_bytes` with this JSON. Takes memory in proportion
// to the JSON, whatever it says. InvalidArgument names tensor, offset (of the
// tensor's name in the header, or of its data) and reason; Unimplemented a
// tensor of an element type that the format has and Skein does not read: the whole file is refused.
absl::StatusOr<std::vector<TensorEntry>> ParseSafetensorsHeader(std::string_view json,
                                                                int64_t file_bytes);

}  // namespace skein::model
