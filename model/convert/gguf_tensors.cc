#include "model/convert/gguf_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "model/format/gguf_names.h"

namespace skein::model {
namespace {

// What of the folder becomes a tensor of the file.
struct Made {
  TensorInfo info;
  std::vector<const TensorInfo*> stored;  // one, or one for each expert; none: `values`
  int64_t head_dim = 0;                   // of rows that are interleaved; 0: they lie in order
  float offset = 0;                       // is added to each element
  std::vector<float> values;
};

class GgufTensors final : public TensorSource {
 public:
  // `made` are sorted by name.
  GgufTensors(std::unique_ptr<TensorSource> folder, std::vector<Made> made)
      : folder_(std::move(folder)), made_(std::move(made)) {
    for (const Made& tensor : made_) tensors_.push_back(tensor.info);
  }

  std::string_view description() const override { return folder_->description(); }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    const Made& made = made_[static_cast<size_t>(&tensor - tensors_.data())];
    if (made.stored.empty()) {
      std::memcpy(out.data(), made.values.data() + slice[0].begin, out.size());
      return absl::OkStatus();
    }
    if (tensor.shape.size() < 3) return ReadOne(made, *made.stored[0], slice, out);
    const size_t bytes = out.size() / static_cast<size_t>(slice[0].size());
    for (int64_t expert = slice[0].begin; expert < slice[0].end; ++expert) {
      SKEIN_RETURN_IF_ERROR(ReadOne(made, *made.stored[static_cast<size_t>(expert)],
                                    slice.subspan(1), out.first(bytes)));
      out.remove_prefix(bytes);
    }
    return absl::OkStatus();
  }

 private:
  // A slice of a vector or a matrix, in the type of the file.
  absl::Status ReadOne(const Made& made, const TensorInfo& stored, absl::Span<const Range> slice,
                       absl::Span<std::byte> out) const {
    if (stored.dtype == made.info.dtype && made.offset == 0) {
      return ReadRows(made, stored, slice, out);
    }
    int64_t elements = 1;
    for (const Range& range : slice) elements *= range.size();
    std::vector<std::byte> bytes(static_cast<size_t>(DTypeBytes(stored.dtype, elements)));
    SKEIN_RETURN_IF_ERROR(ReadRows(made, stored, slice, absl::MakeSpan(bytes)));
    std::vector<float> values(static_cast<size_t>(elements));
    ConvertToFloat(stored.dtype, bytes.data(), elements, values.data());
    for (float& value : values) value += made.offset;
    ConvertFromFloat(made.info.dtype, values.data(), elements, out.data());
    return absl::OkStatus();
  }

  // Row 2 i of a head is row i of its first half, row 2 i + 1 is row i of its second half. Takes a
  // head's rows of memory.
  absl::Status ReadRows(const Made& made, const TensorInfo& stored, absl::Span<const Range> slice,
                        absl::Span<std::byte> out) const {
    if (made.head_dim == 0) return folder_->Read(stored, slice, out);
    const Range rows = slice[0];
    const size_t row_bytes = out.size() / static_cast<size_t>(rows.size());
    std::vector<Range> of_head(slice.begin(), slice.end());
    std::vector<std::byte> head(static_cast<size_t>(made.head_dim) * row_bytes);
    for (int64_t begin = rows.begin / made.head_dim * made.head_dim; begin < rows.end;
         begin += made.head_dim) {
      of_head[0] = {begin, begin + made.head_dim};
      SKEIN_RETURN_IF_ERROR(folder_->Read(stored, of_head, absl::MakeSpan(head)));
      const int64_t last = std::min(rows.end, begin + made.head_dim);
      for (int64_t row = std::max(rows.begin, begin); row < last; ++row) {
        const int64_t at = row - begin;
        const int64_t from = at % 2 * (made.head_dim / 2) + at / 2;
        std::memcpy(out.data(), head.data() + static_cast<size_t>(from) * row_bytes, row_bytes);
        out.remove_prefix(row_bytes);
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<TensorSource> folder_;
  std::vector<Made> made_;
  std::vector<TensorInfo> tensors_;
};

bool IsRouter(const std::string& gguf) {
  return absl::StrContains(gguf, ".ffn_gate_inp.") ||
         absl::StrContains(gguf, ".ffn_gate_inp_shexp.");
}

// A tensor of the file without its experts, if it has some.
absl::StatusOr<Made> Make(const TensorInfo& stored, const GgufPlace& place,
                          const ModelConfig& config, const GgufDialect& dialect,
                          std::optional<DType> matrices) {
  if (!IsWeight(stored.dtype) || IsQuantized(stored.dtype)) {
    return absl::UnimplementedError(
        absl::StrCat("tensor '", stored.name, "' is of ", std::string(DTypeName(stored.dtype)),
                     "; only models in F32, F16 and BF16 are converted"));
  }
  Made made;
  made.info = {place.name, stored.dtype, stored.shape};
  made.stored.push_back(&stored);
  if (made.info.shape.size() < 2 || IsRouter(place.name)) {
    made.info.dtype = DType::kF32;
  } else {
    made.info.dtype = matrices.value_or(stored.dtype);
  }
  if (absl::StrContains(place.name, "_norm.")) made.offset = static_cast<float>(config.norm_offset);
  if (IsInterleaved(dialect, place.name)) made.head_dim = config.head_dim;
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> AsGgufTensors(std::unique_ptr<TensorSource> folder,
                                                            const ModelConfig& config,
                                                            std::string architecture,
                                                            const std::vector<GgufVector>& vectors,
                                                            std::optional<DType> matrices) {
  const GgufDialect dialect = GgufDialectOf(architecture);
  std::map<std::string, Made> by_name;
  // What else folders hold (frequencies, a tied output matrix, biases of zeros) says nothing more.
  std::set<std::string> needed;
  for (NamedShape& tensor : TensorsOf(config)) needed.insert(std::move(tensor.name));
  for (const TensorInfo& stored : folder->tensors()) {
    if (!needed.contains(stored.name)) continue;
    const std::optional<GgufPlace> place = GgufPlaceOf(dialect, stored.name);
    if (!place) {
      return absl::UnimplementedError(absl::StrCat("GGUF files of ", architecture,
                                                   " have no name for tensor '", stored.name, "'"));
    }
    SKEIN_ASSIGN_OR_RETURN(Made made, Make(stored, *place, config, dialect, matrices));
    if (place->expert < 0) {
      by_name[place->name] = std::move(made);
      continue;
    }
    const auto [all, added] = by_name.try_emplace(place->name, std::move(made));
    std::vector<const TensorInfo*>& experts = all->second.stored;
    if (added) {
      experts.assign(static_cast<size_t>(config.experts.count), nullptr);
      all->second.info.shape.insert(all->second.info.shape.begin(), config.experts.count);
    }
    if (place->expert >= config.experts.count) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", stored.name, "' is of expert ",
                                                     place->expert, " of ", config.experts.count));
    }
    experts[static_cast<size_t>(place->expert)] = &stored;
  }
  for (const GgufVector& vector : vectors) {
    Made made;
    made.info = {vector.name, DType::kF32, {static_cast<int64_t>(vector.values.size())}};
    made.values = vector.values;
    by_name[vector.name] = std::move(made);
  }
  std::vector<Made> made;
  for (auto& [name, tensor] : by_name) {
    const auto missing = std::find(tensor.stored.begin(), tensor.stored.end(), nullptr);
    if (missing != tensor.stored.end()) {
      return absl::InvalidArgumentError(absl::StrCat("expert ", missing - tensor.stored.begin(),
                                                     " of what becomes '", name, "' is missing"));
    }
    made.push_back(std::move(tensor));
  }
  return std::make_unique<GgufTensors>(std::move(folder), std::move(made));
}

}  // namespace skein::model
