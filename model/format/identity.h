// Tells whether two nodes hold the same model, and two ranks the same weights.
//
// Identity compares what is cheap to read: it finds another model, another config or tokenizer,
// another dtype or shape, a file of another size. It does not find weights that differ in their
// bytes only; SliceHasher does, for the slices that are read, while they are in memory anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/range.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// 32 hex digits: a hash of the bytes of config.json and tokenizer.json (or, where there is none, of
// tokenizer.model, tokenizer_config.json and added_tokens.json), or of a GGUF file's metadata, the
// tensors' names, dtypes and shapes, and the names and sizes of the files of weights. A missing
// tokenizer.json is not an empty one; a missing config.json is NotFound. An empty
// `folder` stands for a model without files (synthetic), which its description and tensors
// identify. Reads no weights.
absl::StatusOr<std::string> ComputeModelIdentity(const std::string& folder,
                                                 const TensorSource& weights);

// A hash over slices of tensors, the same in whatever order and by however many threads they are
// added, different when one is missing or added twice. Not made to withstand forgery. Any thread
// may call it. Costs one pass over the bytes, at more than 5 GB/s a core.
class SliceHasher {
 public:
  void Add(std::string_view tensor, absl::Span<const Range> slice,
           absl::Span<const std::byte> bytes);

  // 48 hex digits: how many slices were added, and the sum of their hashes.
  std::string Digest() const;

 private:
  mutable Mutex mutex_;
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t sum_low_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t sum_high_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace skein::model
