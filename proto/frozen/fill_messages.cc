// fill_messages DESCRIPTORS: of every message that is called with or answered, as hexadecimal,
// lines of "TYPE BYTES" that together set every field (filled_message.h).
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/dynamic_message.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/escaping.h"
#include "proto/frozen/filled_message.h"

int main(int argc, char** argv) {
  namespace pb = ::google::protobuf;
  std::ifstream file(argc == 2 ? argv[1] : "");
  pb::FileDescriptorSet files;
  if (!files.ParseFromIstream(&file)) return 2;
  pb::SimpleDescriptorDatabase database;
  for (const auto& one : files.file()) database.Add(one);
  const pb::DescriptorPool pool(&database);
  pb::DynamicMessageFactory factory(&pool);
  std::set<std::string> lines;
  for (const auto& one : files.file()) {
    const pb::FileDescriptor& known = *pool.FindFileByName(one.name());
    for (int s = 0; s < known.service_count(); ++s) {
      for (int m = 0; m < known.service(s)->method_count(); ++m) {
        const pb::MethodDescriptor& method = *known.service(s)->method(m);
        for (const pb::Descriptor* type : {method.input_type(), method.output_type()}) {
          for (int alternative = 0; alternative < 60; ++alternative) {
            const std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
            skein::Fill(*message, alternative);
            lines.insert(type->full_name() + " " +
                         absl::BytesToHexString(message->SerializeAsString()));
          }
        }
      }
    }
  }
  for (const std::string& line : lines) std::cout << line << "\n";
  return 0;
}
