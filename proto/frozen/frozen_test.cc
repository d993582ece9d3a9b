// Holds today's schemas against those of every version that this program still speaks.
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"
#include "proto/frozen/changes.h"
#include "proto/frozen/filled_message.h"
#include "proto/frozen/frozen_protocol.h"
#include "proto/inference.pb.h"

namespace skein {
namespace {

namespace pb = ::google::protobuf;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kVersions[] = {1};  // BUILD's, too
const char* const kFiles[] = {"proto/topology.proto", "proto/plan.proto", "proto/inference.proto",
                              "proto/cluster.proto"};

const pb::DescriptorPool& Today() {
  cluster::v1::Hello::descriptor();  // so that they are linked
  v1::GenerateRequest::descriptor();
  return *pb::DescriptorPool::generated_pool();
}

std::vector<std::string> Lines(const std::string& path) {
  const std::string text = ReadFileOrEmpty(path);
  EXPECT_FALSE(text.empty()) << path;
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(FrozenTest, NothingThatWasSaidHasChanged) {
  for (const int version : kVersions) {
    const FrozenProtocol then(version);
    for (const char* const file : kFiles) {
      const pb::FileDescriptor* const known = then.pool().FindFileByName(file);
      ASSERT_NE(known, nullptr) << file;
      EXPECT_THAT(Changes(*known, Today()), IsEmpty())
          << "programs that speak version " << version
          << " would misunderstand this: docs/protocol.md says how fields come and go";
    }
  }
}

// The bytes are as they were frozen, whatever became of the schemas beside them.
TEST(FrozenTest, EveryFieldOfFrozenMessagesIsFoundUnderItsName) {
  for (const int version : kVersions) {
    std::set<std::string> seen;
    for (const std::string& line :
         Lines(absl::StrCat("proto/frozen/v", version, "/every_field.txt"))) {
      const std::vector<std::string> parts = absl::StrSplit(line, ' ');
      ASSERT_EQ(parts.size(), 2u) << line;
      const pb::Descriptor* const type = Today().FindMessageTypeByName(parts[0]);
      ASSERT_NE(type, nullptr) << parts[0];
      const std::unique_ptr<pb::Message> message(
          pb::MessageFactory::generated_factory()->GetPrototype(type)->New());
      ASSERT_TRUE(message->ParseFromString(absl::HexStringToBytes(parts[1]))) << parts[0];
      EXPECT_EQ(WhatIsNotAsFilled(*message, seen), "") << parts[0];
    }
    // Of what these are made of, no field is without its bytes.
    const FrozenProtocol then(version);
    std::set<std::string> types;
    const std::function<void(const pb::Descriptor&)> look = [&](const pb::Descriptor& type) {
      if (!types.insert(type.full_name()).second) return;
      for (int i = 0; i < type.field_count(); ++i) {
        EXPECT_TRUE(seen.contains(type.field(i)->full_name()))
            << type.field(i)->full_name() << ": run scripts/freeze_protocol.sh";
        if (type.field(i)->message_type() != nullptr) look(*type.field(i)->message_type());
      }
    };
    for (const char* const file : kFiles) {
      const pb::FileDescriptor& known = *then.pool().FindFileByName(file);
      for (int s = 0; s < known.service_count(); ++s) {
        for (int m = 0; m < known.service(s)->method_count(); ++m) {
          look(*known.service(s)->method(m)->input_type());
          look(*known.service(s)->method(m)->output_type());
        }
      }
    }
    EXPECT_GT(types.size(), 50u);
  }
}

// A release freezes what it says.
TEST(FrozenTest, TheLastVersionIsFrozenAsThisProgramSpeaksIt) {
  const std::string program =
      ReadFileOrEmpty(absl::StrCat("proto/frozen/v", *std::rbegin(kVersions), "/program"));
  EXPECT_EQ(absl::StripAsciiWhitespace(program), std::string(kVersion))
      << "run scripts/freeze_protocol.sh";
}

// ---- The comparison itself ----

// A schema as text would have it, and what changes it.
std::vector<std::string> ChangesBy(const std::function<void(pb::FileDescriptorProto&)>& edit) {
  pb::FileDescriptorProto file;
  Today().FindFileByName("proto/topology.proto")->CopyTo(&file);  // imports nothing
  pb::DescriptorProto& more = *file.add_message_type();
  more.set_name("Sample");
  more.add_reserved_name("old");
  more.add_reserved_range()->set_start(7);
  more.mutable_reserved_range(0)->set_end(8);
  pb::EnumDescriptorProto& kind = *more.add_enum_type();
  kind.set_name("Kind");
  for (const char* const name : {"NONE", "ONE"}) {
    kind.add_value()->set_number(kind.value_size() - 1);
    kind.mutable_value(kind.value_size() - 1)->set_name(name);
  }
  pb::ServiceDescriptorProto& service = *file.add_service();
  service.set_name("Calls");
  pb::MethodDescriptorProto& method = *service.add_method();
  method.set_name("Ask");
  method.set_input_type(".skein.topology.v1.Node");
  method.set_output_type(".skein.topology.v1.Topology");
  pb::FileDescriptorProto edited = file;
  edit(edited);
  pb::DescriptorPool then, now;
  const pb::FileDescriptor* const before = then.BuildFile(file);
  EXPECT_NE(before, nullptr);
  EXPECT_NE(now.BuildFile(edited), nullptr);
  return Changes(*before, now);
}

pb::DescriptorProto& Find(pb::FileDescriptorProto& file, const std::string& name) {
  for (auto& type : *file.mutable_message_type()) {
    if (type.name() == name) return type;
  }
  ADD_FAILURE() << name;
  return *file.mutable_message_type(0);
}

pb::FieldDescriptorProto& Add(pb::DescriptorProto& type, const std::string& name, int number) {
  pb::FieldDescriptorProto& field = *type.add_field();
  field.set_name(name);
  field.set_number(number);
  field.set_type(pb::FieldDescriptorProto::TYPE_INT32);
  field.set_label(pb::FieldDescriptorProto::LABEL_OPTIONAL);
  return field;
}

TEST(ChangesTest, WhatIsAddedIsNone) {
  EXPECT_THAT(ChangesBy([](auto&) {}), IsEmpty());
  EXPECT_THAT(ChangesBy([](auto& file) {
                Add(Find(file, "Node"), "racks", 99);
                Find(file, "Sample").mutable_enum_type(0)->add_value()->set_name("TWO");
                Find(file, "Sample").mutable_enum_type(0)->mutable_value(2)->set_number(2);
                *file.mutable_service(0)->add_method() = file.service(0).method(0);
                file.mutable_service(0)->mutable_method(1)->set_name("Tell");
              }),
              IsEmpty());
}

TEST(ChangesTest, NamesWhatOthersWouldMisread) {
  using Edit = std::function<void(pb::FileDescriptorProto&)>;
  struct Case {
    Edit edit;
    std::string says;
  };
  // Node: host = 1, cores = 2, memory_bytes = 3.
  const auto node = [](pb::FileDescriptorProto& file, int field) {
    return Find(file, "Node").mutable_field(field);
  };
  const std::vector<Case> cases = {
      {[&](auto& file) { node(file, 1)->set_number(4); }, "topology.v1.Node.cores: is gone"},
      {[&](auto& file) { node(file, 1)->set_name("threads"); },
       "'int32 cores = 2' became 'int32 threads = 2'"},
      {[&](auto& file) { node(file, 1)->set_type(pb::FieldDescriptorProto::TYPE_SINT32); },
       "became 'sint32 cores = 2'"},
      {[&](auto& file) { node(file, 1)->set_type(pb::FieldDescriptorProto::TYPE_INT64); },
       "became 'int64 cores = 2'"},
      {[&](auto& file) { node(file, 1)->set_label(pb::FieldDescriptorProto::LABEL_REPEATED); },
       "became 'repeated int32 cores = 2 packed'"},
      {[&](auto& file) {
         node(file, 1)->set_number(3);
         node(file, 2)->set_number(2);
       },
       "'int32 cores = 2' became 'int64 memory_bytes = 2'"},
      {[&](auto& file) { Find(file, "Node").mutable_field()->RemoveLast(); },
       "topology.v1.Node.memory_bytes: is gone"},
      {[&](auto& file) {
         Find(file, "Node").add_oneof_decl()->set_name("size");
         node(file, 1)->set_oneof_index(0);
       },
       "became 'int32 cores = 2 of size'"},
      {[&](auto& file) {
         Find(file, "Sample").clear_reserved_range();
         Add(Find(file, "Sample"), "fresh", 7);
       },
       "Sample.fresh: uses what was given up"},
      {[&](auto& file) {
         Find(file, "Sample").clear_reserved_name();
         Add(Find(file, "Sample"), "old", 9);
       },
       "Sample.old: uses what was given up"},
      {[&](auto& file) {
         Find(file, "Sample").mutable_enum_type(0)->mutable_value(1)->set_number(5);
       },
       "ONE: is gone, or another one has its number"},
      {[&](auto& file) {
         Find(file, "Sample").mutable_enum_type(0)->mutable_value(1)->set_name("UN");
       },
       "ONE: is gone, or another one has its number"},
      {[&](auto& file) { file.mutable_service(0)->mutable_method(0)->set_name("Query"); },
       "Calls.Ask: is gone"},
      {[&](auto& file) { file.mutable_service(0)->mutable_method(0)->set_server_streaming(true); },
       "became 'Ask(skein.topology.v1.Node) returns (stream "},
      {[&](auto& file) {
         file.mutable_service(0)->mutable_method(0)->set_input_type(".skein.topology.v1.Device");
       },
       "became 'Ask(skein.topology.v1.Device)"},
      {[&](auto& file) { file.clear_service(); }, "topology.v1.Calls: is gone"},
      {[&](auto& file) { file.mutable_message_type()->RemoveLast(); }, "Sample: is gone"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ChangesBy(c.edit), ::testing::Contains(HasSubstr(c.says))) << c.says;
  }
}

}  // namespace
}  // namespace skein
