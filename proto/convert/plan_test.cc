#include "proto/convert/plan.h"

#include <functional>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::convert {
namespace {

using ::testing::HasSubstr;

// A consistent plan whose fields all differ, so that a swapped or forgotten one shows: the last
// rank has replica 4, stage 2, shard 1 and layers 70 to 89.
plan::Plan DistinctPlan() {
  plan::Plan plan;
  plan.job_id = "job";
  plan.model_name = "name";
  plan.model_path = "/path";
  plan.model_identity = "identity";
  plan.layout = {2, 3, 5};
  const Range layers[] = {{0, 20}, {20, 70}, {70, 90}};
  for (int32_t rank = 0; rank < 30; ++rank) {
    const int32_t stage = rank / 2 % 3;
    plan.ranks.push_back({rank,
                          rank / 6,
                          stage,
                          rank % 2,
                          layers[stage],
                          100 + rank,
                          (int64_t{1} << 40) + rank,
                          (int64_t{1} << 41) + rank,
                          (int64_t{1} << 42) + rank,
                          (int64_t{1} << 43) + rank,
                          {.name = "cpu " + std::to_string(rank),
                           .memory_bytes = 1 + rank,
                           .nccl = true,
                           .peers = true}});
  }
  std::swap(plan.ranks[3].rank, plan.ranks[4].rank);
  plan.idle_ranks = {30, 31};
  plan.micro_batches = 7;
  plan.max_num_seqs = 11;
  plan.max_micro_batch_rows = 13;
  plan.max_num_batched_tokens = 89;
  plan.page_size = 17;
  plan.pages = 1000;
  plan.swap_pages = 500;
  plan.kv_dtype = plan::KvDType::kInt8;
  plan.hop_dtype = DType::kBF16;
  plan.deterministic = true;
  plan.exact = true;
  plan.context_length = 1900;
  plan.reasons = {"first", "second"};
  plan.prediction = {.prompt_tokens = 300,
                     .output_tokens = 200,
                     .concurrency = 12,
                     .ttft = absl::Milliseconds(41),
                     .tpot = absl::Milliseconds(5),
                     .output_tokens_per_s = 2345,
                     .measured = true,
                     .spread = 0.125};
  return plan;
}

TEST(PlanOnTheWire, ComesBackEqual) {
  const std::string bytes = ToProto(DistinctPlan()).SerializeAsString();
  plan::v1::Plan wire;
  ASSERT_TRUE(wire.ParseFromString(bytes));
  SKEIN_ASSERT_OK_AND_ASSIGN(const plan::Plan back, FromProto(wire));
  EXPECT_EQ(back, DistinctPlan());
}

// Every scalar field of the message, at any depth, is set by ToProto: a field that is added to the
// contract and forgotten here is found.
TEST(PlanOnTheWire, LeavesNoFieldUnset) {
  const plan::v1::Plan wire = ToProto(DistinctPlan());
  const auto expect_set = [](const google::protobuf::Message& message) {
    std::vector<const google::protobuf::FieldDescriptor*> set;
    message.GetReflection()->ListFields(message, &set);
    EXPECT_EQ(static_cast<int>(set.size()), message.GetDescriptor()->field_count())
        << message.ShortDebugString();
  };
  expect_set(wire);
  expect_set(wire.layout());
  expect_set(wire.ranks(29));
  expect_set(wire.ranks(29).device());
}

TEST(PlanOnTheWire, ChecksWhatItReads) {
  struct Case {
    std::function<void(plan::v1::Plan&)> spoil;
    const char* words;
  };
  const Case cases[] = {
      {[](auto& w) { w.Clear(); }, "layout.tp_size is 0"},
      {[](auto& w) { w.clear_layout(); }, "layout.tp_size is 0"},
      {[](auto& w) { w.mutable_layout()->set_pp_size(1 << 30); }, "layout.pp_size is 1073741824"},
      {[](auto& w) { w.set_hop_dtype("I32"); }, "unknown element type 'I32'"},
      {[](auto& w) { w.set_idle_ranks(1, 32); }, "rank is 32; it must be from 0 to 31"},
      {[](auto& w) { w.clear_ranks(); }, "needs 30 ranks; the plan has 0"},
      {[](auto& w) { w.mutable_ranks(3)->clear_device(); }, "device: kind is unknown"},
      {[](auto& w) { w.mutable_ranks(29)->set_tp_rank(0); }, "rank 29: tp_rank is 0"},
      {[](auto& w) { w.mutable_ranks(0)->set_layers_end(-1); }, "rank 0: layers' end is -1"},
      {[](auto& w) { w.set_pages(-1); }, "pages is -1"},
      {[](auto& w) { w.set_swap_pages(-1); }, "swap_pages is -1"},
      {[](auto& w) { w.clear_max_num_batched_tokens(); }, "max_num_batched_tokens is 0"},
      {[](auto& w) { w.set_kv_dtype("fp4"); }, "KV dtype \"fp4\" is not known"},
      {[](auto& w) { w.clear_context_length(); }, "context_length is 0"},
  };
  for (const Case& c : cases) {
    plan::v1::Plan wire = ToProto(DistinctPlan());
    c.spoil(wire);
    EXPECT_THAT(FromProto(wire).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.words)));
  }
}

}  // namespace
}  // namespace skein::convert
