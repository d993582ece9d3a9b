#include "worker/model_shard.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "model/config/model_config.h"
#include "model/format/identity.h"
#include "model/format/open.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/shard.h"
#include "topology/cpus.h"
#include "topology/host/cores.h"

namespace skein::worker {
namespace {

constexpr char kBard[] = "checkpoints/bard";

// Bard in two stages on two ranks.
absl::StatusOr<plan::Plan> BardPlan() {
  SKEIN_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadModelConfig(kBard));
  SKEIN_ASSIGN_OR_RETURN(const auto tensors, model::OpenTensorSource(kBard));
  plan::Plan plan;
  plan.model_path = kBard;
  SKEIN_ASSIGN_OR_RETURN(plan.model_identity, model::ComputeModelIdentity(kBard, *tensors));
  plan.layout = {1, 2, 1};
  for (int32_t stage = 0; stage < 2; ++stage) {
    plan.ranks.push_back(
        {stage, 0, stage, 0, plan::StageLayers(config.num_layers, 2, stage), 1, 1, 1});
  }
  plan.micro_batches = 2;
  plan.max_num_seqs = 4;
  plan.max_micro_batch_rows = 8;
  plan.max_num_batched_tokens = 16;
  plan.page_size = 16;
  plan.pages = 5;
  plan.context_length = 80;
  return plan;
}

TEST(LoadModelShardTest, CachesAreThePlans) {
  SKEIN_ASSERT_OK_AND_ASSIGN(plan::Plan plan, BardPlan());
  for (const char* backend : {"cpu", "reference"}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ModelShard plain,
                               LoadModelShard(plan, plan.ranks[1], {.backend = backend}));
    const kernels::KvSpec spec = {
        .layers = 4, .kv_heads = 2, .head_dim = 64, .page_size = 16, .pages = 5};
    EXPECT_EQ(plain.kv->spec(), spec);
    EXPECT_EQ(plain.swap, nullptr);
    EXPECT_EQ(plain.swap_pages_per_s, 0);
  }
  plan.kv_dtype = plan::KvDType::kInt8;
  plan.swap_pages = 3;
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelShard shard, LoadModelShard(plan, plan.ranks[1], {}));
  EXPECT_EQ(shard.kv->spec().dtype, kernels::KvDType::kInt8);
  EXPECT_EQ(shard.kv->spec().pages, 5);
  EXPECT_EQ(shard.swap->spec().pages, 3);
  // A page has 18 KiB: between a slow disk's rate and more than any memory's.
  EXPECT_GT(shard.swap_pages_per_s, 1e3);
  EXPECT_LT(shard.swap_pages_per_s, 1e9);
  SKEIN_EXPECT_OK(shard.swap->CopyPage(*shard.kv, 4, 2));
  SKEIN_EXPECT_OK(shard.kv->CopyPage(*shard.swap, 2, 0));
}

TEST(LoadModelShardTest, ProgramsAreDeterministicWherePlansAre) {
  SKEIN_ASSERT_OK_AND_ASSIGN(plan::Plan plan, BardPlan());
  for (const bool deterministic : {false, true}) {
    plan.deterministic = deterministic;
    SKEIN_ASSERT_OK_AND_ASSIGN(const ModelShard shard, LoadModelShard(plan, plan.ranks[1], {}));
    EXPECT_EQ(shard.program.program.deterministic, deterministic);
  }
}

// What each of this process's threads of that name may run on.
std::multiset<topology::Cpus> CpusOfThreads(const std::string& name) {
  std::multiset<topology::Cpus> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (ReadFileOrEmpty(task.path() / "comm") != name + "\n") continue;
    for (absl::string_view line : absl::StrSplit(ReadFileOrEmpty(task.path() / "status"), '\n')) {
      if (absl::ConsumePrefix(&line, "Cpus_allowed_list:\t")) {
        all.insert(topology::ParseCpus({line.data(), line.size()}));
      }
    }
  }
  return all;
}

// Threads name and bind themselves: in some seconds at most.
void ExpectPool(const std::multiset<topology::Cpus>& expected) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (CpusOfThreads("pool") != expected && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(CpusOfThreads("pool"), expected);
}

TEST(LoadModelShardTest, ThreadsHaveACoreEachWhereThereAreAsMany) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<topology::Cpus> cores, topology::AffinityCpus());
  if (cores.size() < 2) GTEST_SKIP() << "there is one core";
  SKEIN_ASSERT_OK_AND_ASSIGN(plan::Plan plan, BardPlan());
  plan::RankPlan& rank = plan.ranks[1];
  rank.threads = static_cast<int32_t>(cores.size());
  {
    SKEIN_ASSERT_OK_AND_ASSIGN(const ModelShard shard, LoadModelShard(plan, rank, {}));
    ExpectPool({cores.begin() + 1, cores.end()});
  }
  topology::Cpus all;
  for (const topology::Cpus& core : cores) all.insert(all.end(), core.begin(), core.end());
  std::sort(all.begin(), all.end());
  ++rank.threads;
  SKEIN_ASSERT_OK_AND_ASSIGN(const ModelShard shard, LoadModelShard(plan, rank, {}));
  std::multiset<topology::Cpus> any;
  for (size_t i = 0; i < cores.size(); ++i) any.insert(all);
  ExpectPool(any);
}

TEST(ResolveModelPathTest, TakesTheRootsFolderOfTheSameName) {
  EXPECT_EQ(ResolveModelPath("/models/bard", ""), "/models/bard");
  EXPECT_EQ(ResolveModelPath("/models/bard", "/local"), "/local/bard");
  EXPECT_EQ(ResolveModelPath("models/bard/", "/local/"), "/local/bard");
}

}  // namespace
}  // namespace skein::worker
