#include "model/quantize/quantized_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "model/quantize/quantize_blocks.h"

namespace skein::model {
namespace {

constexpr float kMostF16 = 65504;

class QuantizedTensors final : public TensorSource {
 public:
  QuantizedTensors(std::unique_ptr<TensorSource> source, const std::vector<DType>& types,
                   const ImportanceMatrix* importance, std::unique_ptr<ThreadPool> pool)
      : source_(std::move(source)), importance_(importance), pool_(std::move(pool)) {
    for (const TensorInfo& tensor : source_->tensors()) {
      tensors_.push_back({tensor.name, types[tensors_.size()], tensor.shape});
    }
  }

  std::string_view description() const override { return source_->description(); }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const auto index = static_cast<size_t>(&tensor - tensors_.data());
    const TensorInfo& stored = source_->tensors()[index];
    if (stored.dtype == tensor.dtype) return source_->Read(stored, slice, out);
    // Experts have an importance each.
    if (slice.size() == 3 && slice[0].size() > 1) {
      std::vector<Range> one(slice.begin(), slice.end());
      const size_t bytes = out.size() / static_cast<size_t>(slice[0].size());
      for (int64_t expert = slice[0].begin; expert < slice[0].end; ++expert) {
        one[0] = {expert, expert + 1};
        SKEIN_RETURN_IF_ERROR(ReadChecked(tensor, one, out.first(bytes)));
        out.remove_prefix(bytes);
      }
      return absl::OkStatus();
    }
    int64_t elements = 1;
    for (const Range& range : slice) elements *= range.size();
    std::vector<std::byte> bytes(static_cast<size_t>(DTypeBytes(stored.dtype, elements)));
    SKEIN_RETURN_IF_ERROR(source_->Read(stored, slice, absl::MakeSpan(bytes)));
    std::vector<float> values(static_cast<size_t>(elements));
    ConvertToFloat(stored.dtype, bytes.data(), elements, values.data());
    SKEIN_RETURN_IF_ERROR(CheckNumbers(tensor, values));
    Quantize(tensor.dtype, values, slice.back().size(), WeightsOf(tensor, slice), out);
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckNumbers(const TensorInfo& tensor, const std::vector<float>& values) {
    for (const float value : values) {
      if (std::abs(value) <= kMostF16) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' holds ", value,
                       ", which blocks cannot: their scales are in F16"));
    }
    return absl::OkStatus();
  }

  // Of the columns of the slice; empty: all weigh the same.
  std::vector<float> WeightsOf(const TensorInfo& tensor, absl::Span<const Range> slice) const {
    if (importance_ == nullptr) return {};
    const auto found = importance_->tensors.find(tensor.name);
    if (found == importance_->tensors.end()) return {};
    const int64_t expert = slice.size() == 3 ? slice[0].begin : 0;
    const std::vector<float> all = RelativeSquares(found->second, expert);
    if (all.empty()) return {};
    return {all.begin() + slice.back().begin, all.begin() + slice.back().end};
  }

  // Row by row, shared out over the threads.
  void Quantize(DType dtype, const std::vector<float>& values, int64_t cols,
                const std::vector<float>& weights, absl::Span<std::byte> out) const {
    const int64_t row_bytes = DTypeBytes(dtype, cols);
    const float* const importance = weights.empty() ? nullptr : weights.data();
    const auto quantize = [&](int64_t row, int) {
      const float* const in = values.data() + row * cols;
      std::byte* const to = out.data() + row * row_bytes;
      if (IsQuantized(dtype)) {
        QuantizeBlocks(dtype, in, importance, cols / BlockElements(dtype), to);
      } else {
        ConvertFromFloat(dtype, in, cols, to);
      }
    };
    MutexLock lock(&mutex_);
    pool_->ForEach(static_cast<int64_t>(values.size()) / cols, quantize);
  }

  const std::unique_ptr<TensorSource> source_;
  const ImportanceMatrix* const importance_;
  mutable Mutex mutex_;
  const std::unique_ptr<ThreadPool> pool_ ABSL_PT_GUARDED_BY(mutex_);
  std::vector<TensorInfo> tensors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> AsQuantizedTensors(
    std::unique_ptr<TensorSource> source, const std::vector<DType>& types,
    const ImportanceMatrix* importance, int threads) {
  SKEIN_ASSIGN_OR_RETURN(auto pool, ThreadPool::Create(threads));
  return std::make_unique<QuantizedTensors>(std::move(source), types, importance, std::move(pool));
}

}  // namespace skein::model
