#include "proto/frozen/filled_message.h"

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// FNV-1a, so that two fields hardly have one number. Half of it fits floats exactly.
int32_t NumberOf(const FieldDescriptor& field) {
  uint32_t hash = 2166136261;
  for (const char byte : field.full_name()) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619;
  }
  return static_cast<int32_t>(1 + hash % 1'000'000);
}

int LastValue(const FieldDescriptor& field) {
  const EnumDescriptor& kind = *field.enum_type();
  return kind.value(kind.value_count() - 1)->number();
}

void SetOne(Message& message, const FieldDescriptor& field, int alternative) {
  const Reflection& to = *message.GetReflection();
  const int32_t number = NumberOf(field);
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? to.AddInt32(&message, &field, number) : to.SetInt32(&message, &field, number);
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? to.AddInt64(&message, &field, number) : to.SetInt64(&message, &field, number);
    case FieldDescriptor::CPPTYPE_UINT32:
      return many ? to.AddUInt32(&message, &field, number) : to.SetUInt32(&message, &field, number);
    case FieldDescriptor::CPPTYPE_UINT64:
      return many ? to.AddUInt64(&message, &field, number) : to.SetUInt64(&message, &field, number);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return many ? to.AddDouble(&message, &field, number / 2.0)
                  : to.SetDouble(&message, &field, number / 2.0);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return many ? to.AddFloat(&message, &field, number / 2.0f)
                  : to.SetFloat(&message, &field, number / 2.0f);
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? to.AddBool(&message, &field, true) : to.SetBool(&message, &field, true);
    case FieldDescriptor::CPPTYPE_ENUM:
      return many ? to.AddEnumValue(&message, &field, LastValue(field))
                  : to.SetEnumValue(&message, &field, LastValue(field));
    case FieldDescriptor::CPPTYPE_STRING:
      return many ? to.AddString(&message, &field, field.full_name())
                  : to.SetString(&message, &field, field.full_name());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Fill(many ? *to.AddMessage(&message, &field) : *to.MutableMessage(&message, &field),
                  alternative);
  }
}

template <typename Get>
bool Is(const Message& message, const FieldDescriptor& field, const Get& get) {
  if (!field.is_repeated()) return get(-1);
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    if (!get(i)) return false;
  }
  return true;
}

bool IsAsFilled(const Message& message, const FieldDescriptor& field) {
  const Reflection& of = *message.GetReflection();
  const int32_t number = NumberOf(field);
  const auto is = [&](const auto& single, const auto& repeated, const auto& want) {
    return Is(message, field, [&](int i) {
      return (i < 0 ? single(message, &field) : repeated(message, &field, i)) == want;
    });
  };
#define SKEIN_IS(Type, want)                                                         \
  is([&](const Message& m, const FieldDescriptor* f) { return of.Get##Type(m, f); }, \
     [&](const Message& m, const FieldDescriptor* f, int i) {                        \
       return of.GetRepeated##Type(m, f, i);                                         \
     },                                                                              \
     want)
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return SKEIN_IS(Int32, number);
    case FieldDescriptor::CPPTYPE_INT64:
      return SKEIN_IS(Int64, number);
    case FieldDescriptor::CPPTYPE_UINT32:
      return SKEIN_IS(UInt32, static_cast<uint32_t>(number));
    case FieldDescriptor::CPPTYPE_UINT64:
      return SKEIN_IS(UInt64, static_cast<uint64_t>(number));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return SKEIN_IS(Double, number / 2.0);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return SKEIN_IS(Float, number / 2.0f);
    case FieldDescriptor::CPPTYPE_BOOL:
      return SKEIN_IS(Bool, true);
    case FieldDescriptor::CPPTYPE_ENUM:
      return true;  // its values' numbers are compared by changes.h; more may come after the last
    case FieldDescriptor::CPPTYPE_STRING:
      return SKEIN_IS(String, field.full_name());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return true;  // its own fields are looked at
  }
#undef SKEIN_IS
  return false;
}

}  // namespace

void Fill(Message& message, int alternative) {
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto* const oneof = field.real_containing_oneof();
    if (oneof != nullptr && field.index_in_oneof() != alternative % oneof->field_count()) continue;
    SetOne(message, field, alternative);
    // Of a map each key comes once.
    if (field.is_repeated() && !field.is_map()) SetOne(message, field, alternative);
  }
}

std::string WhatIsNotAsFilled(const Message& message, std::set<std::string>& seen) {
  const Reflection& of = *message.GetReflection();
  if (!of.GetUnknownFields(message).empty()) {
    return absl::StrCat(message.GetTypeName(), " has a field that is unknown");
  }
  std::vector<const FieldDescriptor*> fields;
  of.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    seen.insert(field->full_name());
    if (!IsAsFilled(message, *field)) return field->full_name();
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? of.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const Message& below = field->is_repeated() ? of.GetRepeatedMessage(message, field, i)
                                                  : of.GetMessage(message, field);
      std::string found = WhatIsNotAsFilled(below, seen);
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace skein
