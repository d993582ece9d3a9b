// A sampling parameter's way from the command line to the sampler: whatever lies on it walks over
// serving/sampling_fields.h, so that a new parameter is a field of the wire, a member, a row of the
// table and its use.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "base/test_util.h"
#include "client/sampling_flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert/sampling_scalars.h"
#include "proto/inference.pb.h"
#include "serving/sampling_fields.h"
#include "serving/sampling_values.h"
#include "worker/engine/step_order.h"

namespace skein {
namespace {

using ::testing::HasSubstr;

// The table with a parameter more, which nothing else in the tree has heard of.
struct OneFieldMore {
  struct Params : serving::SamplingParams {
    float warmth = 0;
  };

  template <typename Visit>
  static void ForEach(Visit&& visit) {
    serving::SamplingFields::ForEach(visit);
    visit(serving::SamplingField<Params, float>{"warmth", &Params::warmth, -1, 1, false, "Warmer"});
  }
};

// skein.v1.Sampling with the field, as proto/inference.proto would have it.
class WireWithOneFieldMore {
 public:
  WireWithOneFieldMore() {
    google::protobuf::FileDescriptorProto file;
    v1::Sampling::descriptor()->file()->CopyTo(&file);
    for (auto& message : *file.mutable_message_type()) {
      if (message.name() != "Sampling") continue;
      auto& field = *message.add_field();
      field.set_name("warmth");
      field.set_number(1000);
      field.set_type(google::protobuf::FieldDescriptorProto::TYPE_FLOAT);
      field.set_label(google::protobuf::FieldDescriptorProto::LABEL_OPTIONAL);
    }
    descriptor_ = pool_.BuildFile(file)->FindMessageTypeByName("Sampling");
  }
  std::unique_ptr<google::protobuf::Message> New() {
    return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(descriptor_)->New());
  }

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::Descriptor* descriptor_ = nullptr;
};

// The message that `skein generate` makes of its flags.
template <typename Fields>
void Ask(std::vector<std::string> flags, google::protobuf::Message& message) {
  CLI::App command;
  client::DeclareScalars<Fields>(command, message);
  command.parse(std::vector<std::string>(flags.rbegin(), flags.rend()));
}

TEST(SamplingParameterTest, OneMoreIsCarriedFromTheCommandLineToTheSampler) {
  WireWithOneFieldMore wire;
  const auto request = wire.New();
  Ask<OneFieldMore>({"--warmth", "0.75", "--top-k", "3"}, *request);

  // The coordinator reads the request and checks it.
  OneFieldMore::Params resolved;
  SKEIN_ASSERT_OK(
      serving::Assign<OneFieldMore>(convert::ScalarValues<OneFieldMore>(*request), resolved));
  EXPECT_EQ(resolved.warmth, 0.75f);

  // What it sends is what a worker reads.
  const auto sent = wire.New();
  convert::ScalarsToProto<OneFieldMore>(resolved, *sent);
  const auto received = wire.New();
  ASSERT_TRUE(received->ParseFromString(sent->SerializeAsString()));
  OneFieldMore::Params params;
  convert::ScalarsFromProto<OneFieldMore>(*received, params);
  EXPECT_EQ(params.warmth, 0.75f);
  EXPECT_EQ(params.top_k, 3);
  EXPECT_EQ(params.typical_p, 1.0f);
}

TEST(SamplingParameterTest, OneMoreIsRefusedByNameAndRange) {
  OneFieldMore::Params params;
  EXPECT_THAT(serving::Assign<OneFieldMore>({{"warmth", 1.5f}}, params),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sampling.warmth: 1.5 is not in [-1, 1]")));
}

// Every row of the table, through the real messages: flags, request, order, and the sampler's
// parameters at the other end.
TEST(SamplingParameterTest, EachIsCarriedFromTheCommandLineToTheSampler) {
  int fields = 0;
  serving::SamplingFields::ForEach([&](const auto& field) {
    SCOPED_TRACE(std::string(field.name));
    ++fields;
    const serving::SamplingParams defaults;
    std::string flag = "--" + std::string(field.name);
    for (char& letter : flag) letter = letter == '_' ? '-' : letter;
    // In every range, and nobody's default.
    using T = std::remove_cvref_t<decltype(field.low)>;
    const T value = static_cast<T>(std::is_same_v<T, float> ? (field.low > 0.5 ? 1.25 : 0.625) : 3);
    ASSERT_NE(defaults.*field.member, value);
    v1::Sampling asked;
    Ask<serving::SamplingFields>({flag, std::to_string(value)}, asked);
    serving::SamplingParams resolved;
    SKEIN_ASSERT_OK(serving::Assign(convert::ScalarValues(asked), resolved));
    v1::Sampling sent;
    convert::ScalarsToProto(resolved, sent);
    serving::SamplingParams received;
    convert::ScalarsFromProto(sent, received);
    const worker::StepOrder order{.starts = {{.sampling = received}}};
    SKEIN_ASSERT_OK_AND_ASSIGN(const worker::StepOrder heard,
                               worker::DecodeStepOrder(worker::Encode(order)));
    serving::SamplingParams want;
    want.*field.member = value;
    EXPECT_TRUE(heard.starts.at(0).sampling == want);
  });
  EXPECT_GE(fields, 17);
}

}  // namespace
}  // namespace skein
