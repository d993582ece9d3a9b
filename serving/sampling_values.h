// Sampling parameters that somebody sets by name, over defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "serving/sampling_fields.h"

namespace skein::serving {

// By SamplingField::name, in memory that outlives the map; unset parameters are absent.
using SamplingValues = std::map<std::string_view, std::variant<float, int32_t, uint64_t>>;

template <typename Params, typename T>
absl::Status CheckRange(const SamplingField<Params, T>& field, T value) {
  const bool in = value >= field.low && value <= field.high;  // NaN is not
  if (in && !(field.open && value == field.low)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sampling.", std::string(field.name), ": ", value,
                                                 " is not in ", field.open ? "(" : "[", field.low,
                                                 ", ", field.high, "]"));
}

// Sets what `values` names. InvalidArgument names the field, its value and its range; Internal: no
// field has such a name and type.
template <typename Fields = SamplingFields>
absl::Status Assign(const SamplingValues& values, typename Fields::Params& params) {
  absl::Status status;
  size_t assigned = 0;
  Fields::ForEach([&]<typename Params, typename T>(const SamplingField<Params, T>& field) {
    const auto found = values.find(field.name);
    if (!status.ok() || found == values.end()) return;
    const T* value = std::get_if<T>(&found->second);
    if (value == nullptr) return;
    params.*field.member = *value;
    ++assigned;
    status = CheckRange(field, *value);
  });
  if (status.ok() && assigned != values.size()) {
    status = absl::InternalError("a sampling parameter of no known name or of another type is set");
  }
  return status;
}

}  // namespace skein::serving
