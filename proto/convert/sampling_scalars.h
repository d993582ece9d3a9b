// The scalars of skein.v1.Sampling, by name: what serving/sampling_fields.h lists and nothing else.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include "serving/sampling_fields.h"
#include "serving/sampling_values.h"

namespace skein::convert {

// Table and message are kept alike by hand: a name that is missing ends the process, and every test
// that converts a request.
inline const google::protobuf::FieldDescriptor& FieldNamed(const google::protobuf::Message& message,
                                                           std::string_view name) {
  const auto* field = message.GetDescriptor()->FindFieldByName(std::string(name));
  if (field == nullptr) std::abort();
  return *field;
}

// The field's type is T's; protobuf aborts where it is another.
template <typename T>
T GetScalar(const google::protobuf::Message& message,
            const google::protobuf::FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if constexpr (std::is_same_v<T, float>) return reflection.GetFloat(message, &field);
  if constexpr (std::is_same_v<T, int32_t>) return reflection.GetInt32(message, &field);
  if constexpr (std::is_same_v<T, uint64_t>) return reflection.GetUInt64(message, &field);
}
template <typename T>
void SetScalar(google::protobuf::Message& message, std::string_view name, T value) {
  const auto& reflection = *message.GetReflection();
  const auto& field = FieldNamed(message, name);
  if constexpr (std::is_same_v<T, float>) reflection.SetFloat(&message, &field, value);
  if constexpr (std::is_same_v<T, int32_t>) reflection.SetInt32(&message, &field, value);
  if constexpr (std::is_same_v<T, uint64_t>) reflection.SetUInt64(&message, &field, value);
}

// Reads those that are set.
template <typename Fields = serving::SamplingFields>
serving::SamplingValues ScalarValues(const google::protobuf::Message& sampling) {
  serving::SamplingValues values;
  Fields::ForEach([&]<typename P, typename T>(const serving::SamplingField<P, T>& row) {
    const auto& field = FieldNamed(sampling, row.name);
    if (!sampling.GetReflection()->HasField(sampling, &field)) return;
    values.emplace(row.name, GetScalar<T>(sampling, field));
  });
  return values;
}

// Sets all of them.
template <typename Fields = serving::SamplingFields>
void ScalarsToProto(const typename Fields::Params& params, google::protobuf::Message& sampling) {
  Fields::ForEach([&]<typename P, typename T>(const serving::SamplingField<P, T>& row) {
    SetScalar<T>(sampling, row.name, params.*row.member);
  });
}

// Takes those that are set, whatever their range.
template <typename Fields = serving::SamplingFields>
void ScalarsFromProto(const google::protobuf::Message& sampling, typename Fields::Params& params) {
  Fields::ForEach([&]<typename P, typename T>(const serving::SamplingField<P, T>& row) {
    const auto& field = FieldNamed(sampling, row.name);
    if (!sampling.GetReflection()->HasField(sampling, &field)) return;
    params.*row.member = GetScalar<T>(sampling, field);
  });
}

}  // namespace skein::convert
