#include "proto/convert/attach.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::convert {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Pair;
using ::testing::SizeIs;

namespace wire = ::skein::cluster::v1;

// ---- Hello ----

attach::Hello PlainHello() {
  return {.version = "1.2",
          .protocols = {2, 5},
          .job_id = "5f0c",
          .job_key = std::string("32 bytes, one of which is \0: key", 32),
          .rank = 3,
          .job_size = 4,
          .pid = 4711,
          .node = {.host = "node7", .cores = 64, .memory_bytes = int64_t{1} << 40},
          .device = {.kind = DeviceKind::kCpu, .name = "a CPU"},
          .layout = {.tp_size = 2, .pp_size = 1}};
}

// Fields are set by the names of the wire, not of the codec.
wire::Hello WireHello() {
  wire::Hello hello;
  hello.set_version("1.2");
  hello.set_job_id("5f0c");
  hello.mutable_protocols()->set_min(2);
  hello.mutable_protocols()->set_max(5);
  hello.set_job_key(std::string("32 bytes, one of which is \0: key", 32));
  hello.set_rank(3);
  hello.set_job_size(4);
  hello.set_pid(4711);
  hello.mutable_node()->set_host("node7");
  hello.mutable_node()->set_cores(64);
  hello.mutable_node()->set_memory_bytes(int64_t{1} << 40);
  hello.mutable_device()->set_kind("cpu");
  hello.mutable_device()->set_name("a CPU");
  hello.set_layout("tp=2,pp=1");
  return hello;
}

TEST(HelloTest, EveryFieldOfTheWireIsSet) {
  const wire::Hello got = ToProto(PlainHello());
  EXPECT_EQ(got.version(), "1.2");
  EXPECT_EQ(got.job_id(), "5f0c");
  EXPECT_EQ(got.protocols().min(), 2);
  EXPECT_EQ(got.protocols().max(), 5);
  EXPECT_EQ(got.job_key(), std::string("32 bytes, one of which is \0: key", 32));
  EXPECT_EQ(got.rank(), 3);
  EXPECT_EQ(got.job_size(), 4);
  EXPECT_EQ(got.pid(), 4711);
  EXPECT_EQ(got.node().host(), "node7");
  EXPECT_EQ(got.node().cores(), 64);
  EXPECT_EQ(got.node().memory_bytes(), int64_t{1} << 40);
  EXPECT_EQ(got.device().kind(), "cpu");
  EXPECT_EQ(got.device().name(), "a CPU");
  EXPECT_EQ(got.layout(), "tp=2,pp=1");
}

TEST(HelloTest, EveryFieldOfTheWireIsRead) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello got, FromProto(WireHello()));
  const attach::Hello want = PlainHello();
  EXPECT_EQ(got.version, want.version);
  EXPECT_EQ(got.job_id, want.job_id);
  EXPECT_EQ(got.protocols, want.protocols);
  EXPECT_EQ(got.job_key, want.job_key);
  EXPECT_EQ(got.rank, want.rank);
  EXPECT_EQ(got.job_size, want.job_size);
  EXPECT_EQ(got.pid, want.pid);
  EXPECT_EQ(got.node.host, want.node.host);
  EXPECT_EQ(got.node.cores, want.node.cores);
  EXPECT_EQ(got.node.memory_bytes, want.node.memory_bytes);
  EXPECT_EQ(got.device.kind, want.device.kind);
  EXPECT_EQ(got.device.name, want.device.name);
  EXPECT_EQ(got.layout, want.layout);
}

TEST(HelloTest, ARankTellsOfItsHostAlone) {
  EXPECT_FALSE(ToProto(PlainHello()).has_told());
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello silent, FromProto(WireHello()));
  EXPECT_FALSE(silent.told.has_value());

  attach::Hello hello = PlainHello();
  hello.told = {.hosts = {{.name = "node7", .cores = 64}}};
  hello.told->hosts[0].core_rates.reads = {{1 << 20, 2e10, 1e10}};
  hello.told->fabric.link.bytes_per_s = 1e9;
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello back, FromProto(ToProto(hello)));
  ASSERT_TRUE(back.told.has_value());
  EXPECT_EQ(*back.told, *hello.told);

  wire::Hello two = ToProto(hello);
  *two.mutable_told()->add_hosts() = two.told().hosts(0);
  two.mutable_told()->mutable_hosts(1)->set_name("node8");
  EXPECT_THAT(FromProto(two).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("told: a rank tells of its own host alone")));
  wire::Hello senseless = ToProto(hello);
  senseless.mutable_told()->mutable_hosts(0)->set_cores(-1);
  EXPECT_THAT(FromProto(senseless).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("told: ")));
}

TEST(HelloTest, NothingAskedIsAnEmptyLayout) {
  attach::Hello hello = PlainHello();
  hello.layout = {};
  EXPECT_EQ(ToProto(hello).layout(), "");
  wire::Hello asks_nothing = WireHello();
  asks_nothing.clear_layout();
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello got, FromProto(asks_nothing));
  EXPECT_EQ(got.layout, plan::LayoutRequest());
}

TEST(HelloTest, NamesArePrintableOrRefused) {
  wire::Hello hello = WireHello();
  hello.set_version("1\x1b");
  hello.mutable_node()->set_host("host\n");
  hello.mutable_device()->set_name("a\x07");
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello got, FromProto(hello));
  EXPECT_EQ(got.version, "1\\x1b");
  EXPECT_EQ(got.node.host, "host\\x0a");
  EXPECT_EQ(got.device.name, "a\\x07");

  const std::string long_name(257, 'x');
  const auto refusal = [](const wire::Hello& refused, const std::string& why) {
    EXPECT_THAT(FromProto(refused).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  hello = WireHello();
  hello.set_version(long_name);
  refusal(hello, "version: 257 bytes; at most 256");
  hello = WireHello();
  hello.set_layout(long_name);
  refusal(hello, "layout: 257 bytes");
  hello.set_layout("tp=x");
  refusal(hello, "tp=x");
  hello = WireHello();
  hello.mutable_node()->set_host(long_name);
  refusal(hello, "node: host: 257 bytes");
  hello = WireHello();
  hello.mutable_node()->set_cores(0);
  refusal(hello, "node");
  hello = WireHello();
  hello.mutable_device()->set_name(long_name);
  refusal(hello, "device: name: 257 bytes");
  hello = WireHello();
  hello.mutable_device()->set_kind("abacus");
  refusal(hello, "device: kind");
  hello = WireHello();
  hello.set_job_id("");
  refusal(hello, "job_id: empty");
  hello = WireHello();
  hello.set_job_key("short");
  refusal(hello, "job_key: 5 bytes");
}

// It is to be refused for its age, not for what it could not know.
TEST(HelloTest, OneWithoutProtocolsNeedsNoKey) {
  wire::Hello hello = WireHello();
  hello.clear_protocols();
  hello.clear_job_key();
  SKEIN_ASSERT_OK_AND_ASSIGN(const attach::Hello got, FromProto(hello));
  EXPECT_EQ(got.protocols, attach::ProtocolRange());
  hello.set_job_id(std::string(257, 'x'));
  EXPECT_THAT(FromProto(hello), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job_id")));
}

TEST(WelcomeTest, EveryFieldGoesBothWays) {
  const wire::Welcome sent = ToProto(attach::Welcome{
      .version = "1.2", .protocols = {2, 5}, .protocol = 4, .nonce = std::string("n\0n", 3)});
  EXPECT_EQ(sent.version(), "1.2");
  EXPECT_EQ(sent.protocols().min(), 2);
  EXPECT_EQ(sent.protocols().max(), 5);
  EXPECT_EQ(sent.protocol(), 4);
  EXPECT_EQ(sent.nonce(), std::string("n\0n", 3));
  const attach::Welcome back = FromProto(sent);
  EXPECT_EQ(back.version, "1.2");
  EXPECT_EQ(back.protocols, (attach::ProtocolRange{2, 5}));
  EXPECT_EQ(back.protocol, 4);
  EXPECT_EQ(back.nonce, std::string("n\0n", 3));
}

TEST(CheckJobTest, RefusesWhatNoJobMayHave) {
  const std::string key(32, 'k');
  SKEIN_EXPECT_OK(CheckJob("5f0c", key));
  SKEIN_EXPECT_OK(CheckJob(std::string(256, 'j'), key));
  const auto refusal = [](const std::string& id, const std::string& key, const std::string& why) {
    EXPECT_THAT(CheckJob(id, key), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refusal("", key, "job_id: empty");
  refusal(std::string(257, 'j'), key, "job_id: 257 bytes; at most 256");
  refusal("a\x1b", key, "job_id: 'a\\x1b' has characters that cannot be printed");
  refusal("5f0c", std::string(31, 'k'), "job_key: 31 bytes; a key has 32");
  refusal("5f0c", std::string(33, 'k'), "job_key: 33 bytes");
}

// ---- Ready ----

TEST(ReadyTest, EveryFieldGoesBothWays) {
  const wire::Ready sent = ToProto(attach::Ready{.slice_key = "layers 0-7, shard 1",
                                                 .slice_digest = "d1",
                                                 .model_path = "/models/bard",
                                                 .bytes_read = 12345,
                                                 .load_time = absl::Milliseconds(2500)});
  EXPECT_EQ(sent.slice_key(), "layers 0-7, shard 1");
  EXPECT_EQ(sent.slice_digest(), "d1");
  EXPECT_EQ(sent.model_path(), "/models/bard");
  EXPECT_EQ(sent.bytes_read(), 12345);
  EXPECT_EQ(sent.load_seconds(), 2.5);

  wire::Ready ready;
  ready.set_slice_key("layers 0-7, shard 1");
  ready.set_slice_digest("d1");
  ready.set_model_path("/models/bard");
  ready.set_bytes_read(12345);
  ready.set_load_seconds(2.5);
  const attach::Ready got = FromProto(ready);
  EXPECT_EQ(got.slice_key, "layers 0-7, shard 1");
  EXPECT_EQ(got.slice_digest, "d1");
  EXPECT_EQ(got.model_path, "/models/bard");
  EXPECT_EQ(got.bytes_read, 12345);
  EXPECT_EQ(got.load_time, absl::Milliseconds(2500));
}

TEST(ReadyTest, WordsAreCutAndPrintable) {
  wire::Ready ready;
  for (std::string* text :
       {ready.mutable_slice_key(), ready.mutable_slice_digest(), ready.mutable_model_path()}) {
    *text = "\x1b" + std::string(2000, 'x');
  }
  const attach::Ready got = FromProto(ready);
  for (const std::string& name : {got.slice_key, got.slice_digest}) {
    EXPECT_THAT(name, AllOf(SizeIs(Le(256u)), HasSubstr("\\x1bx"), EndsWith("...")));
  }
  EXPECT_THAT(got.model_path, AllOf(SizeIs(Le(1024u)), HasSubstr("\\x1bx"), EndsWith("...")));
}

// ---- Heartbeat ----

attach::Heartbeat PlainHeartbeat() {
  return {
      .progress = {.step = 41,
                   .deadline = absl::Seconds(30),
                   .operation =
                       comm::OperationInProgress{
                           .group = "replica 0",
                           .call = {.operation = comm::Operation::kReceive, .peer = 2, .number = 7},
                           .others = {3, 5},
                           .elapsed = absl::Seconds(12),
                           .still = absl::Milliseconds(2500)},
                   .entered = {{"tp of replica 0, stage 1", 812}, {"replica 0", 6}}},
      .threads = {{"scheduler", absl::Milliseconds(250)}, {"listener", absl::Seconds(4)}},
      .messages_taken = uint64_t{1} << 63,
      .experts = ExpertLoad{.rows = 900, .layer = 3, .expert = 17, .of_average = 2.5},
      .times = comm::RankTimes{.compute = absl::Seconds(8),
                               .transfer = absl::Milliseconds(500),
                               .bubble = absl::Milliseconds(250),
                               .waiting = absl::Seconds(4)}};
}

TEST(HeartbeatTest, EveryFieldOfTheWireIsSet) {
  const wire::Heartbeat got = ToProto(PlainHeartbeat());
  EXPECT_EQ(got.operation().group(), "replica 0");
  EXPECT_EQ(got.operation().operation(), "receive");
  EXPECT_EQ(got.operation().number(), 7);
  EXPECT_EQ(got.operation().peer(), 2);
  EXPECT_THAT(got.operation().others(), ElementsAre(3, 5));
  EXPECT_EQ(got.operation().seconds(), 12);
  EXPECT_EQ(got.operation().deadline_seconds(), 30);
  EXPECT_EQ(got.operation().still_seconds(), 2.5);
  EXPECT_EQ(got.step(), 41);
  EXPECT_THAT(got.entered(), SizeIs(2));
  EXPECT_EQ(got.entered().at("tp of replica 0, stage 1"), 812);
  EXPECT_EQ(got.entered().at("replica 0"), 6);
  EXPECT_EQ(got.messages_taken(), uint64_t{1} << 63);
  EXPECT_THAT(got.threads(), SizeIs(2));
  EXPECT_EQ(got.threads().at("scheduler"), 0.25);
  EXPECT_EQ(got.threads().at("listener"), 4);
  EXPECT_EQ(got.experts().rows(), 900);
  EXPECT_EQ(got.experts().layer(), 3);
  EXPECT_EQ(got.experts().expert(), 17);
  EXPECT_EQ(got.experts().of_average(), 2.5);
  EXPECT_EQ(got.times().compute_seconds(), 8);
  EXPECT_EQ(got.times().transfer_seconds(), 0.5);
  EXPECT_EQ(got.times().bubble_seconds(), 0.25);
  EXPECT_EQ(got.times().waiting_seconds(), 4);
}

// Strangers' numbers.
TEST(HeartbeatTest, TimesStayFinite) {
  wire::Heartbeat heartbeat;
  heartbeat.mutable_times()->set_compute_seconds(std::numeric_limits<double>::quiet_NaN());
  heartbeat.mutable_times()->set_transfer_seconds(std::numeric_limits<double>::infinity());
  heartbeat.mutable_times()->set_bubble_seconds(-1);
  heartbeat.mutable_times()->set_waiting_seconds(1e300);
  const comm::RankTimes times = FromProto(heartbeat).times.value();
  EXPECT_EQ(times.compute, absl::ZeroDuration());
  EXPECT_EQ(times.bubble, absl::ZeroDuration());
  EXPECT_LT(times.Sum(), absl::InfiniteDuration());
}

// Fields are set by the names of the wire, not of the codec.
wire::Heartbeat WireHeartbeat() {
  wire::Heartbeat heartbeat;
  wire::OperationInProgress& operation = *heartbeat.mutable_operation();
  operation.set_group("replica 0");
  operation.set_operation("receive");
  operation.set_number(7);
  operation.set_peer(2);
  operation.add_others(3);
  operation.add_others(5);
  operation.set_seconds(12);
  operation.set_deadline_seconds(30);
  operation.set_still_seconds(2.5);
  heartbeat.set_step(41);
  (*heartbeat.mutable_entered())["tp of replica 0, stage 1"] = 812;
  (*heartbeat.mutable_entered())["replica 0"] = 6;
  heartbeat.set_messages_taken(uint64_t{1} << 63);
  (*heartbeat.mutable_threads())["scheduler"] = 0.25;
  (*heartbeat.mutable_threads())["listener"] = 4;
  heartbeat.mutable_experts()->set_rows(900);
  heartbeat.mutable_experts()->set_layer(3);
  heartbeat.mutable_experts()->set_expert(17);
  heartbeat.mutable_experts()->set_of_average(2.5);
  heartbeat.mutable_times()->set_compute_seconds(8);
  heartbeat.mutable_times()->set_transfer_seconds(0.5);
  heartbeat.mutable_times()->set_bubble_seconds(0.25);
  heartbeat.mutable_times()->set_waiting_seconds(4);
  return heartbeat;
}

TEST(HeartbeatTest, EveryFieldOfTheWireIsRead) {
  const attach::Heartbeat got = FromProto(WireHeartbeat());
  ASSERT_TRUE(got.progress.operation.has_value());
  const comm::OperationInProgress& operation = *got.progress.operation;
  EXPECT_EQ(operation.group, "replica 0");
  EXPECT_EQ(operation.call.operation, comm::Operation::kReceive);
  EXPECT_EQ(operation.call.number, 7);
  EXPECT_EQ(operation.call.peer, 2);
  EXPECT_THAT(operation.others, ElementsAre(3, 5));
  EXPECT_EQ(operation.elapsed, absl::Seconds(12));
  EXPECT_EQ(operation.still, absl::Milliseconds(2500));
  EXPECT_EQ(got.progress.deadline, absl::Seconds(30));
  EXPECT_EQ(got.progress.step, 41);
  EXPECT_THAT(got.progress.entered,
              ElementsAre(Pair("replica 0", 6), Pair("tp of replica 0, stage 1", 812)));
  EXPECT_EQ(got.messages_taken, uint64_t{1} << 63);
  EXPECT_EQ(got.experts, (ExpertLoad{.rows = 900, .layer = 3, .expert = 17, .of_average = 2.5}));
  EXPECT_EQ(got.times, PlainHeartbeat().times);
  EXPECT_THAT(got.threads, ElementsAre(Pair("listener", absl::Seconds(4)),
                                       Pair("scheduler", absl::Milliseconds(250))));
}

TEST(HeartbeatTest, AnIdleRankIsInNoOperationAndNoStep) {
  const wire::Heartbeat sent = ToProto(attach::Heartbeat());
  EXPECT_FALSE(sent.has_operation());
  EXPECT_FALSE(sent.has_step());
  const attach::Heartbeat got = FromProto(wire::Heartbeat());
  EXPECT_FALSE(got.progress.operation.has_value());
  EXPECT_FALSE(got.progress.step.has_value());
  EXPECT_THAT(got.progress.entered, IsEmpty());
  EXPECT_THAT(got.threads, IsEmpty());
  EXPECT_EQ(got.messages_taken, 0);
  EXPECT_EQ(got.experts, std::nullopt);
}

TEST(HeartbeatTest, OnlyMessagesAndBroadcastsHaveAPeer) {
  attach::Heartbeat heartbeat = PlainHeartbeat();
  const auto peer_of = [&](comm::Operation operation) {
    heartbeat.progress.operation->call.operation = operation;
    return ToProto(heartbeat).operation().peer();
  };
  EXPECT_EQ(peer_of(comm::Operation::kAllReduce), -1);
  EXPECT_EQ(peer_of(comm::Operation::kBarrier), -1);
  EXPECT_EQ(peer_of(comm::Operation::kBroadcast), 2);
  EXPECT_EQ(peer_of(comm::Operation::kSend), 2);
}

TEST(HeartbeatTest, AStepWithoutEndHasAnInfiniteDeadline) {
  attach::Heartbeat heartbeat = PlainHeartbeat();
  heartbeat.progress.deadline = absl::InfiniteDuration();
  const wire::Heartbeat sent = ToProto(heartbeat);
  EXPECT_EQ(sent.operation().deadline_seconds(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(FromProto(sent).progress.deadline, absl::InfiniteDuration());
}

TEST(HeartbeatTest, WhatAStrangerSaysIsBounded) {
  wire::Heartbeat heartbeat = WireHeartbeat();
  heartbeat.mutable_operation()->set_group("\x1b" + std::string(2000, 'x'));
  for (int i = 0; i < attach::kMaxJobSize; ++i) heartbeat.mutable_operation()->add_others(i);
  for (int i = 0; i < 100; ++i) {
    (*heartbeat.mutable_entered())[absl::StrCat("\x1b", i, std::string(300, 'x'))] = 1;
    (*heartbeat.mutable_threads())[absl::StrCat("\x1b", i, std::string(300, 'x'))] = 1;
  }
  const attach::Heartbeat got = FromProto(heartbeat);
  EXPECT_THAT(got.progress.operation->group, AllOf(SizeIs(Le(256u)), HasSubstr("\\x1bx")));
  EXPECT_THAT(got.progress.operation->others, SizeIs(attach::kMaxJobSize));
  EXPECT_THAT(got.progress.entered, SizeIs(64));
  EXPECT_THAT(got.threads, SizeIs(64));
  for (const auto& [group, number] : got.progress.entered) EXPECT_THAT(group, SizeIs(Le(256u)));
  for (const auto& [thread, still] : got.threads) EXPECT_THAT(thread, SizeIs(Le(256u)));
  heartbeat.mutable_operation()->set_operation("dance");
  EXPECT_FALSE(FromProto(heartbeat).progress.operation.has_value());
}

// ---- Failure ----

TEST(FailureTest, GoesBothWays) {
  const wire::Failure sent = ToProto(absl::UnavailableError("no more"));
  EXPECT_EQ(sent.code(), 14);
  EXPECT_EQ(sent.message(), "no more");
  wire::Failure failure;
  failure.set_code(14);
  failure.set_message("no more\x1b");
  EXPECT_THAT(FromProto(failure), StatusIs(absl::StatusCode::kUnavailable, "no more\\x1b"));
  failure.set_code(0);
  EXPECT_THAT(FromProto(failure), StatusIs(absl::StatusCode::kUnknown, "no more\\x1b"));
}

}  // namespace
}  // namespace skein::convert
