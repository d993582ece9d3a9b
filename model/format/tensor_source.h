// A model file as named tensors. Any slice of a tensor can be read.
//
// A rank reads only its shard, so callers ask for slices; a source copies exactly these bytes and
// counts them. Quantised types join as dtypes with larger blocks: a slice's last dimension then
// begins and ends on block boundaries, and callers do not change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/counted_numbers.h"
#include "base/dtype.h"
#include "base/range.h"

namespace skein::model {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first; rank 0 is a scalar

  int64_t elements() const;  // product of the shape; it is known not to overflow
};

struct FileInfo {
  std::string name;  // without its folder
  int64_t size_bytes = 0;
};

// Thread-safe: any thread may read at any time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The name of this source in messages: a path, or "synthetic:llama3-1b".
  virtual std::string_view description() const = 0;

  // All tensors, sorted by name; stable addresses for the life of the source.
  virtual absl::Span<const TensorInfo> tensors() const = 0;

  // The files that hold the tensors, sorted by name; empty for a source in memory.
  virtual std::vector<FileInfo> files() const { return {}; }

  // The tensor of that name, or NotFound that names the source and the tensor.
  absl::StatusOr<const TensorInfo*> Find(std::string_view name) const;

  // Copies the slice (one range per dimension) of the tensor to `out`, row-major, in the tensor's
  // own dtype. `out.size()` is exactly the slice's bytes. OutOfRange for ranges outside of the
  // shape, InvalidArgument for a slice off block boundaries, an `out` of another size or a tensor
  // that is not this source's. After an error `out` holds anything.
  absl::Status Read(const TensorInfo& tensor, absl::Span<const Range> slice,
                    absl::Span<std::byte> out) const;

  // Where a tensor in BF16 is numbers that whoever has a faster way may make itself: them, with the
  // bits that Read gives.
  virtual std::optional<CountedRows> Counted(const TensorInfo& /*tensor*/) const {
    return std::nullopt;
  }

  // Bytes that Read copied out so far, by all threads.
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 protected:
  // Read's work after its checks: `tensor` is an element of tensors(), `slice` is within its shape
  // and not empty.
  virtual absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                                   absl::Span<std::byte> out) const = 0;

 private:
  mutable std::atomic<int64_t> bytes_read_{0};
};

}  // namespace skein::model
