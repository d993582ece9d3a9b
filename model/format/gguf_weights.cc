#include "model/format/gguf_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "model/format/gguf_keys.h"
#include "model/format/gguf_names.h"

namespace skein::model {
namespace {

class HuggingFaceWeights final : public TensorSource {
 public:
  struct Stored {
    const TensorInfo* tensor = nullptr;
    int64_t head_dim = 0;  // of interleaved rows; 0: they lie in order
    int64_t expert = -1;   // whose part it is of a tensor of all
    bool as_row = false;   // a vector that is a matrix of one row
  };
  struct Tensor {
    TensorInfo info;
    Stored stored;
  };

  // `tensors` are sorted by name.
  HuggingFaceWeights(std::unique_ptr<TensorSource> stored, std::vector<Tensor> tensors)
      : stored_(std::move(stored)) {
    for (Tensor& tensor : tensors) {
      tensors_.push_back(std::move(tensor.info));
      stored_tensors_.push_back(tensor.stored);
    }
  }

  std::string_view description() const override { return stored_->description(); }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }
  std::vector<FileInfo> files() const override { return stored_->files(); }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const auto& [stored, head_dim, expert, as_row] = stored_tensors_[&tensor - tensors_.data()];
    if (head_dim > 0) return ReadInterleaved(*stored, head_dim, slice, out);
    if (as_row) return stored_->Read(*stored, slice.subspan(1), out);
    if (expert < 0) return stored_->Read(*stored, slice, out);
    return stored_->Read(*stored, {{Range{expert, expert + 1}, slice[0], slice[1]}}, out);
  }

 private:
  // Row i of a head's first half lies at 2 i of it, row i of its second half at 2 i + 1; a bias has
  // rows of one element. Takes a head's rows of memory.
  absl::Status ReadInterleaved(const TensorInfo& stored, int64_t head_dim,
                               absl::Span<const Range> slice, absl::Span<std::byte> out) const {
    const Range rows = slice[0];
    std::vector<Range> of_head(slice.begin(), slice.end());
    const int64_t cols = slice.size() > 1 ? slice[1].size() : 1;
    const auto row_bytes = static_cast<size_t>(DTypeBytes(stored.dtype, cols));
    std::vector<std::byte> head(static_cast<size_t>(head_dim) * row_bytes);
    std::byte* to = out.data();
    for (int64_t begin = rows.begin / head_dim * head_dim; begin < rows.end; begin += head_dim) {
      of_head[0] = {begin, begin + head_dim};
      SKEIN_RETURN_IF_ERROR(stored_->Read(stored, of_head, absl::MakeSpan(head)));
      const int64_t last = std::min(rows.end, begin + head_dim);
      for (int64_t row = std::max(rows.begin, begin); row < last; ++row, to += row_bytes) {
        const int64_t i = row - begin;
        const int64_t at = i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1;
        std::memcpy(to, head.data() + static_cast<size_t>(at) * row_bytes, row_bytes);
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<TensorSource> stored_;
  std::vector<TensorInfo> tensors_;
  std::vector<Stored> stored_tensors_;  // of tensors_
};

// The rows of a head where a tensor's rows are interleaved; 0 where they are not.
absl::StatusOr<int64_t> InterleavedHead(const GgufMetadata& metadata, const GgufDialect& dialect,
                                        const TensorInfo& tensor) {
  if (!IsInterleaved(dialect, tensor.name)) return 0;
  const bool keys = SplitGgufName(tensor.name)->tensor.starts_with("attn_k.");
  const std::string prefix(dialect.architecture);
  const std::string all_heads = prefix + ".attention.head_count";
  const std::string kv_heads = prefix + ".attention.head_count_kv";
  SKEIN_ASSIGN_OR_RETURN(
      const int64_t heads,
      metadata.IntegerOfLayers(keys && metadata.Has(kv_heads) ? kv_heads : all_heads));
  if (tensor.shape.empty() || tensor.shape.size() > 2 || heads < 1 || heads > tensor.shape[0] ||
      tensor.shape[0] % heads != 0 || tensor.shape[0] / heads % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "' has ", tensor.shape.empty() ? 0 : tensor.shape[0],
                     " rows, not an even number for each of ", heads, " heads"));
  }
  return tensor.shape[0] / heads;
}

// Adds a matrix for each expert of a tensor of all of a layer's; false where it is none.
absl::StatusOr<bool> AddExperts(const GgufDialect& dialect, const TensorInfo& stored,
                                std::vector<HuggingFaceWeights::Tensor>& tensors) {
  const std::optional<GgufLayerName> split = SplitGgufName(stored.name);
  if (!split || stored.shape.size() != 3) return false;
  const std::string_view name = OfEachExpert(dialect, split->tensor);
  if (name.empty()) return false;
  if (stored.shape[0] > kMaxExperts) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", stored.name, "' is of ",
                                                   stored.shape[0], " experts, of at most ",
                                                   kMaxExperts));
  }
  for (int64_t expert = 0; expert < stored.shape[0]; ++expert) {
    HuggingFaceWeights::Tensor& tensor = tensors.emplace_back();
    tensor.info = {absl::StrCat("model.layers.", std::string(split->layer), ".",
                                std::string(dialect.experts), expert, ".", std::string(name)),
                   stored.dtype,
                   {stored.shape[1], stored.shape[2]}};
    tensor.stored = {.tensor = &stored, .expert = expert};
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> AsHuggingFaceWeights(GgufModel model) {
  SKEIN_ASSIGN_OR_RETURN(const std::string_view architecture,
                         model.metadata.String(kGgufArchitecture));
  const GgufDialect dialect = GgufDialectOf(architecture);
  std::vector<HuggingFaceWeights::Tensor> tensors;
  for (const TensorInfo& stored : model.tensors->tensors()) {
    if (stored.name == kGgufRopeDivisors || stored.name == kGgufShortDivisors ||
        stored.name == kGgufLongDivisors) {
      continue;
    }
    SKEIN_ASSIGN_OR_RETURN(const bool of_experts, AddExperts(dialect, stored, tensors));
    if (of_experts) continue;
    HuggingFaceWeights::Tensor& tensor = tensors.emplace_back();
    tensor.info = stored;
    tensor.info.name = HuggingFaceName(dialect, stored.name);
    tensor.stored.tensor = &stored;
    if (stored.shape.size() == 1 &&
        absl::EndsWith(tensor.info.name, ".shared_expert_gate.weight")) {
      tensor.stored.as_row = true;
      tensor.info.shape = {1, stored.shape[0]};
    }
    SKEIN_ASSIGN_OR_RETURN(tensor.stored.head_dim,
                           InterleavedHead(model.metadata, dialect, stored));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].info.name == tensors[i].info.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors '", tensors[i - 1].stored.tensor->name, "' and '",
                       tensors[i].stored.tensor->name, "' have one meaning"));
    }
  }
  return std::make_unique<HuggingFaceWeights>(std::move(model.tensors), std::move(tensors));
}

}  // namespace skein::model
