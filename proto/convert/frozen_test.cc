// Frozen messages of ranks mean today what they meant.
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "base/tls/job_key.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/attach/messages.h"
#include "parallel/attach/protocol.h"
#include "proto/cluster.pb.h"
#include "proto/convert/attach.h"
#include "proto/convert/serving.h"
#include "proto/frozen/frozen_protocol.h"
#include "serving/output.h"

namespace skein::convert {
namespace {

namespace wire = ::skein::cluster::v1;

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;

wire::WorkerMessage Said(const std::string& name) {
  wire::WorkerMessage message;
  EXPECT_TRUE(message.ParseFromString(FrozenProtocol(1).Bytes(name))) << name;
  return message;
}

TEST(FrozenTest, EveryProtocolThatIsSpokenIsFrozen) {
  for (int version = attach::kProtocols.min; version <= attach::kProtocols.max; ++version) {
    EXPECT_NE(FrozenProtocol(version).Bytes("hello"), "") << version;
  }
}

TEST(FrozenTest, Hello) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello hello, FromProto(Said("hello").hello()));
  EXPECT_EQ(hello.version, "0.1.0");
  EXPECT_EQ(hello.protocols, (attach::ProtocolRange{1, 1}));
  EXPECT_EQ(hello.job_id, "frozen");
  EXPECT_EQ(hello.job_key, PublicJobKey("a secret of the job"));
  EXPECT_EQ(hello.rank, 0);
  EXPECT_EQ(hello.job_size, 1);
  EXPECT_EQ(hello.pid, 4711);
  EXPECT_EQ(hello.node.host, "node7");
  EXPECT_EQ(hello.node.cores, 4);
  EXPECT_EQ(hello.node.memory_bytes, int64_t{4} << 30);
  EXPECT_EQ(hello.device.kind, DeviceKind::kCpu);
  EXPECT_EQ(hello.device.name, "a CPU");
  EXPECT_EQ(hello.layout.ToString(), "tp=1,pp=1");
}

TEST(FrozenTest, Proof) {
  std::string nonce;
  for (char byte = 0; byte < 32; ++byte) nonce += byte;
  EXPECT_TRUE(IsProof(Said("proof").proof().signature(), PublicJobKey("a secret of the job"),
                      {.nonce = nonce, .job_id = "5f0c", .rank = 3, .job_size = 4}));
}

TEST(FrozenTest, Heartbeat) {
  const attach::Heartbeat beat = FromProto(Said("heartbeat").heartbeat());
  ASSERT_TRUE(beat.progress.operation.has_value());
  EXPECT_EQ(beat.progress.operation->group, "tp of replica 0, stage 1");
  EXPECT_EQ(beat.progress.operation->call.operation, comm::Operation::kAllReduce);
  EXPECT_EQ(beat.progress.operation->call.number, 17);
  EXPECT_THAT(beat.progress.operation->others, ElementsAre(0, 2));
  EXPECT_EQ(beat.progress.operation->elapsed, absl::Milliseconds(1500));
  EXPECT_EQ(beat.progress.operation->still, absl::Milliseconds(250));
  EXPECT_EQ(beat.progress.deadline, absl::Seconds(30));
  EXPECT_EQ(beat.progress.step, 41);
  EXPECT_THAT(beat.progress.entered, ElementsAre(Pair("tp of replica 0, stage 1", 17)));
  EXPECT_EQ(beat.messages_taken, 5u);
  EXPECT_THAT(beat.threads, ElementsAre(Pair("scheduler", absl::Milliseconds(125))));
  ASSERT_TRUE(beat.experts.has_value());
  EXPECT_EQ(beat.experts->rows, 1000);
  EXPECT_EQ(beat.experts->layer, 3);
  EXPECT_EQ(beat.experts->expert, 7);
  EXPECT_EQ(beat.experts->of_average, 2.5);
}

TEST(FrozenTest, Ready) {
  const attach::Ready ready = FromProto(Said("ready").ready());
  EXPECT_EQ(ready.slice_key, "layers 0-3, shard 1 of 1");
  EXPECT_EQ(ready.slice_digest, "d1");
  EXPECT_EQ(ready.bytes_read, 12345);
  EXPECT_EQ(ready.load_time, absl::Milliseconds(2500));
  EXPECT_EQ(ready.model_path, "/models/fake");
}

TEST(FrozenTest, StepOutput) {
  const serving::StepOutput step = FromProto(Said("step").step());
  ASSERT_THAT(step.answers, SizeIs(1));
  EXPECT_EQ(step.answers[0].request_id, serving::RequestId(1));
  EXPECT_EQ(step.answers[0].finish, serving::Finish::kNotFinished);
  ASSERT_THAT(step.answers[0].tokens, SizeIs(2));
  EXPECT_EQ(step.answers[0].tokens[0].id, 104);
  EXPECT_EQ(step.answers[0].tokens[0].logprob, -0.5f);
  ASSERT_THAT(step.answers[0].tokens[0].top_logprobs, SizeIs(2));
  EXPECT_EQ(step.answers[0].tokens[0].top_logprobs[1].id, 105);
  EXPECT_EQ(step.load.steps, 12);
  EXPECT_EQ(step.load.free_pages, 7);
  EXPECT_EQ(step.load.decode_rows, 20);
  const serving::StepOutput last = FromProto(Said("last_step").step());
  ASSERT_THAT(last.answers, SizeIs(1));
  EXPECT_EQ(last.answers[0].finish, serving::Finish::kEos);
}

TEST(FrozenTest, Failure) {
  EXPECT_THAT(FromProto(Said("failure").failure()),
              StatusIs(absl::StatusCode::kInternal, "rank 0 on node7: its GPU has failed"));
}

}  // namespace
}  // namespace skein::convert
