#include "model/format/tensor_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::model {
namespace {

absl::Status CheckSlice(const TensorInfo& tensor, absl::Span<const Range> slice, size_t out_bytes) {
  if (slice.size() != tensor.shape.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a slice of ", slice.size(),
                                                   " ranges was asked of a tensor of rank ",
                                                   tensor.shape.size()));
  }
  int64_t elements = 1;
  for (size_t d = 0; d < slice.size(); ++d) {
    const Range range = slice[d];
    if (range.begin < 0 || range.begin > range.end || range.end > tensor.shape[d]) {
      return absl::OutOfRangeError(absl::StrCat("[", range.begin, ", ", range.end,
                                                ") of dimension ", d, ", which has ",
                                                tensor.shape[d]));
    }
    elements *= range.size();
  }
  const int64_t block = BlockElements(tensor.dtype);
  if (block > 1) {
    const Range last = slice.empty() ? Range{0, 1} : slice.back();
    if (last.begin % block != 0 || last.end % block != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("[", last.begin, ", ", last.end, ") cuts blocks of ", block, " elements"));
    }
  }
  const int64_t bytes = DTypeBytes(tensor.dtype, elements);
  if (static_cast<uint64_t>(bytes) != out_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slice has ", bytes, " bytes, the buffer for it ", out_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TensorInfo::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

absl::StatusOr<const TensorInfo*> TensorSource::Find(std::string_view name) const {
  const absl::Span<const TensorInfo> all = tensors();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  if (found == all.end() || found->name != name) {
    return absl::NotFoundError(absl::StrCat(std::string(description()), ": no tensor '",
                                            std::string(name), "' among its ", all.size()));
  }
  return &*found;
}

absl::Status TensorSource::Read(const TensorInfo& tensor, absl::Span<const Range> slice,
                                absl::Span<std::byte> out) const {
  SKEIN_ASSIGN_OR_RETURN(const TensorInfo* own, Find(tensor.name));
  absl::Status status;
  if (own->dtype != tensor.dtype || own->shape != tensor.shape) {
    status = absl::InvalidArgumentError("another source's tensor of this name");
  }
  status.Update(CheckSlice(*own, slice, out.size()));
  if (status.ok() && !out.empty()) status = ReadChecked(*own, slice, out);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(std::string(description()), ": tensor '",
                                                    tensor.name, "': ", status.message()));
  }
  bytes_read_.fetch_add(static_cast<int64_t>(out.size()), std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace skein::model
