// The header of GGUF, versions 2 and 3. Numbers are little-endian.
//
//   string      uint64 length, bytes
//   value       elements of its type: a number, a byte 0 or 1 (bool), a string,
//               or an array: uint32 type, uint64 count, as many elements, arrays among them
//
//   file        "GGUF", uint32 version, uint64 tensors, uint64 metadata,
//               as many metadata: string key, uint32 type, value
//               as many tensors:  string name, uint32 dimensions, as many uint64 sizes (innermost
//                                 first), uint32 type, uint64 offset
//               padding up to a multiple of general.alignment (32 where it is absent)
//               the tensors' elements, row-major; offsets, multiples of the alignment, count from
//               here
//
// Blocks of quantised types lie along rows. Tensors do not overlap; what is between them is
// padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "model/format/file_source.h"
#include "model/format/gguf_metadata.h"

namespace skein::model {

// No header is longer than this. The vocabulary of 262,144 tokens, with scores, takes some 8 MiB.
inline constexpr int64_t kMaxGgufHeaderBytes = 256 << 20;

// The number by which files name the type of a tensor; nullopt: they have no such type.
std::optional<uint32_t> GgufTensorType(DType dtype);

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<TensorEntry> entries;  // sorted by name
};

// Reads the header of a file of `file_bytes`, which begins with `head`. Takes memory in proportion
// to `head`, whatever it says. OutOfRange: `head` ends before the header, and the file does not;
// call again with more. InvalidArgument names key or tensor, offset and reason; Unimplemented names
// a version or a tensor of a type that the format has and Skein does not read.
absl::StatusOr<GgufHeader> ParseGgufHeader(absl::Span<const std::byte> head, int64_t file_bytes);

}  // namespace skein::model
