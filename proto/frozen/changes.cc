#include "proto/frozen/changes.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace skein {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// As it is written in a schema.
std::string Describe(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->full_name();
  if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
  const auto* const oneof = field.real_containing_oneof();
  return absl::StrCat(field.is_repeated()            ? "repeated "
                      : field.has_optional_keyword() ? "optional "
                                                     : "",
                      type, " ", field.name(), " = ", field.number(),
                      field.is_packed() ? " packed" : "",
                      oneof != nullptr ? absl::StrCat(" of ", oneof->name()) : "");
}

std::string Describe(const MethodDescriptor& method) {
  return absl::StrCat(method.name(), "(", method.client_streaming() ? "stream " : "",
                      method.input_type()->full_name(), ") returns (",
                      method.server_streaming() ? "stream " : "", method.output_type()->full_name(),
                      ")");
}

class Comparison {
 public:
  explicit Comparison(const DescriptorPool& now) : now_(now) {}

  void Compare(const Descriptor& then) {
    const Descriptor* const now = now_.FindMessageTypeByName(then.full_name());
    if (now == nullptr) return Say(then.full_name(), "is gone");
    for (int i = 0; i < then.field_count(); ++i) {
      const FieldDescriptor& field = *then.field(i);
      const FieldDescriptor* const same = now->FindFieldByNumber(field.number());
      if (same == nullptr) {
        Say(field.full_name(), "is gone");
      } else if (Describe(field) != Describe(*same)) {
        Say(then.full_name(),
            absl::StrCat("'", Describe(field), "' became '", Describe(*same), "'"));
      }
    }
    for (int i = 0; i < now->field_count(); ++i) {
      const FieldDescriptor& field = *now->field(i);
      if (then.IsReservedNumber(field.number()) || then.IsReservedName(field.name())) {
        Say(field.full_name(), "uses what was given up");
      }
    }
    for (int i = 0; i < then.nested_type_count(); ++i) Compare(*then.nested_type(i));
    for (int i = 0; i < then.enum_type_count(); ++i) Compare(*then.enum_type(i));
  }

  void Compare(const EnumDescriptor& then) {
    const EnumDescriptor* const now = now_.FindEnumTypeByName(then.full_name());
    if (now == nullptr) return Say(then.full_name(), "is gone");
    for (int i = 0; i < then.value_count(); ++i) {
      const auto* const same = now->FindValueByNumber(then.value(i)->number());
      if (same == nullptr || same->name() != then.value(i)->name()) {
        Say(then.value(i)->full_name(), "is gone, or another one has its number");
      }
    }
  }

  void Compare(const ServiceDescriptor& then) {
    const ServiceDescriptor* const now = now_.FindServiceByName(then.full_name());
    if (now == nullptr) return Say(then.full_name(), "is gone");
    for (int i = 0; i < then.method_count(); ++i) {
      const MethodDescriptor& method = *then.method(i);
      const MethodDescriptor* const same = now->FindMethodByName(method.name());
      if (same == nullptr) {
        Say(method.full_name(), "is gone");
      } else if (Describe(method) != Describe(*same)) {
        Say(then.full_name(),
            absl::StrCat("'", Describe(method), "' became '", Describe(*same), "'"));
      }
    }
  }

  std::vector<std::string> found;

 private:
  void Say(const std::string& where, const std::string& what) {
    found.push_back(absl::StrCat(where, ": ", what));
  }

  const DescriptorPool& now_;
};

}  // namespace

std::vector<std::string> Changes(const FileDescriptor& then, const DescriptorPool& now) {
  Comparison comparison(now);
  for (int i = 0; i < then.message_type_count(); ++i) comparison.Compare(*then.message_type(i));
  for (int i = 0; i < then.enum_type_count(); ++i) comparison.Compare(*then.enum_type(i));
  for (int i = 0; i < then.service_count(); ++i) comparison.Compare(*then.service(i));
  return std::move(comparison.found);
}

}  // namespace skein
