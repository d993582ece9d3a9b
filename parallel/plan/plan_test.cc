#include "parallel/plan/plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/plan/shard.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

model::ModelConfig Bard() {
  model::ModelConfig model;
  model.vocab_size = 2048;
  model.hidden_size = 256;
  model.intermediate_size = 768;
  model.num_layers = 8;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 64;
  model.max_position_embeddings = 1024;
  return model;
}

Plan GoodPlan(const Layout& layout = {2, 2, 2}) {
  Plan plan;
  plan.job_id = "ab12";
  plan.model_name = "bard";
  plan.layout = layout;
  plan.micro_batches = 2;
  plan.max_num_seqs = 16;
  plan.max_micro_batch_rows = 256;
  plan.max_num_batched_tokens = 512;
  plan.page_size = 16;
  plan.pages = 1024;
  plan.context_length = 1024;
  for (int32_t replica = 0; replica < layout.dp_size; ++replica) {
    for (int32_t stage = 0; stage < layout.pp_size; ++stage) {
      for (int32_t shard = 0; shard < layout.tp_size; ++shard) {
        plan.ranks.push_back({plan.PlaceOf(replica, stage, shard), replica, stage, shard,
                              StageLayers(8, layout.pp_size, stage), 1, 3 << 19, 4 << 20, 19 << 19,
                              19 << 19});
      }
    }
  }
  return plan;
}

TEST(LayoutRequest, ParsesAnySubsetInAnyOrder) {
  struct Case {
    const char* text;
    LayoutRequest want;
    const char* formatted;
  };
  const Case cases[] = {
      {"", {}, ""},
      {"tp=2,pp=3,dp=4", {2, 3, 4}, "tp=2,pp=3,dp=4"},
      {"dp=4,tp=2,pp=3", {2, 3, 4}, "tp=2,pp=3,dp=4"},
      {"pp=8", {{}, 8, {}}, "pp=8"},
      {"tp=1024", {1024, {}, {}}, "tp=1024"},
      {"dp=1", {{}, {}, 1}, "dp=1"},
  };
  for (const Case& c : cases) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const LayoutRequest got, ParseLayoutRequest(c.text));
    EXPECT_EQ(got, c.want) << c.text;
    EXPECT_EQ(got.ToString(), c.formatted);
  }
}

TEST(LayoutRequest, RefusalsQuoteTheTextAndShowAnExample) {
  struct Case {
    const char* text;
    const char* reason;
  };
  const Case cases[] = {
      {"tp", "tp has no number"},
      {"tp=", "tp is \"\""},
      {"tp=0", "from 1 to 1024"},
      {"tp=-2", "tp is \"-2\""},
      {"tp=1025", "from 1 to 1024"},
      {"pp=99999999999999999999", "pp is \"99999999999999999999\""},
      {"tp=2x", "tp is \"2x\""},
      {"tp= 2", "tp is \" 2\""},
      {"tp=2,tp=2", "tp is given twice"},
      {"sp=2", "\"sp\" is not known"},
      {"ep=0", "from 1 to 1024"},
      {"TP=2", "\"TP\" is not known"},
      {"tp=2,", "\"\" is not known"},
      {",", "\"\" is not known"},
      {"tp=2;pp=2", "tp is \"2;pp=2\""},
      {"2,2,2", "\"2\" is not known"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ParseLayoutRequest(c.text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("layout \"" + std::string(c.text) + "\": "),
                               HasSubstr(c.reason), HasSubstr("tp=2,pp=2,dp=2"))))
        << c.text;
  }
}

TEST(KvDTypeName, ComesBack) {
  for (KvDType dtype : {KvDType::kF32, KvDType::kBF16, KvDType::kF16, KvDType::kInt8}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const KvDType back, ParseKvDType(KvDTypeName(dtype)));
    EXPECT_EQ(back, dtype);
  }
  EXPECT_EQ(KvDTypeName(KvDType::kBF16), "bf16");
  for (const char* name : {"", "F32", "fp8", "int8 "}) {
    EXPECT_THAT(ParseKvDType(name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("\"" + std::string(name) + "\""), HasSubstr("bf16"))));
  }
}

TEST(HopDType, NamesComeBack) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const DType back, ParseHopDType(HopDTypeName(dtype)));
    EXPECT_EQ(back, dtype);
  }
  EXPECT_EQ(HopDTypeName(DType::kF16), "f16");
  EXPECT_EQ(HopDTypeName(DType::kU8), "unknown");
  for (const char* name : {"", "F32", "int8", "f16 "}) {
    EXPECT_THAT(ParseHopDType(name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("\"" + std::string(name) + "\""), HasSubstr("bf16"))));
  }
}

TEST(Layout, NumbersRanksShardFastest) {
  const Plan plan = GoodPlan({2, 4, 3});
  EXPECT_EQ(plan.layout.ranks(), 24);
  EXPECT_EQ(plan.layout.ToString(), "tp=2,pp=4,dp=3");
  EXPECT_EQ(plan.PlaceOf(0, 0, 1), 1);
  EXPECT_EQ(plan.PlaceOf(0, 1, 0), 2);
  EXPECT_EQ(plan.PlaceOf(1, 0, 0), 8);
  EXPECT_EQ(plan.PlaceOf(2, 3, 1), 23);
}

TEST(Plan, RanksHaveAnyPlaceOrNone) {
  Plan plan = GoodPlan({2, 1, 1});
  plan.ranks[0].rank = 3;
  plan.ranks[1].rank = 0;
  plan.idle_ranks = {2, 1};
  SKEIN_EXPECT_OK(ValidatePlan(plan, Bard()));
  EXPECT_EQ(plan.job_size(), 4);
  EXPECT_EQ(plan.At(0, 0, 1).rank, 0);
  ASSERT_NE(plan.Find(3), nullptr);
  EXPECT_EQ(plan.Find(3)->tp_rank, 0);
  EXPECT_EQ(plan.Find(1), nullptr);
  EXPECT_THAT(FormatPlan(plan), AllOf(HasSubstr(" of 4 ranks\n"), HasSubstr("\n    1  idle\n")));
}

TEST(ValidatePlan, AcceptsEveryLayoutOfBard) {
  for (int32_t tp_size : {1, 2, 4}) {
    for (int32_t pp_size : {1, 2, 3, 8}) {
      for (int32_t dp_size : {1, 2, 5}) {
        SKEIN_EXPECT_OK(ValidatePlan(GoodPlan({tp_size, pp_size, dp_size}), Bard()));
      }
    }
  }
}

TEST(ValidatePlan, ChecksEveryNumber) {
  struct Case {
    const char* name;
    std::function<void(Plan&)> spoil;
    const char* words;
  };
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  const Case cases[] = {
      {"no shards", [](Plan& p) { p.layout.tp_size = 0; }, "layout.tp_size is 0"},
      {"negative stages", [](Plan& p) { p.layout.pp_size = -2; }, "layout.pp_size is -2"},
      {"overflowing", [](Plan& p) { p.layout.dp_size = kMax; }, "layout.dp_size is 2147483647"},
      {"a rank too few", [](Plan& p) { p.ranks.pop_back(); }, "needs 8 ranks; the plan has 7"},
      {"a rank too many", [](Plan& p) { p.ranks.push_back(p.ranks[0]); }, "the plan has 9"},
      {"no ranks", [](Plan& p) { p.ranks.clear(); }, "the plan has 0"},
      {"swapped parts", [](Plan& p) { std::swap(p.ranks[2], p.ranks[3]); }, "rank 3: tp_rank is 1"},
      {"a rank twice", [](Plan& p) { p.ranks[2].rank = 3; }, "rank 3 is there twice"},
      {"a rank that idles and works", [](Plan& p) { p.idle_ranks = {3}; }, "rank 3 is there twice"},
      {"no such rank", [](Plan& p) { p.ranks[2].rank = 8; }, "rank is 8; it must be from 0 to 7"},
      {"no such rank idles", [](Plan& p) { p.idle_ranks = {9}; }, "rank is 9"},
      {"many idle", [](Plan& p) { p.idle_ranks.resize(2000); }, "idle ranks is 2000"},
      {"replica", [](Plan& p) { p.ranks[5].dp_rank = 0; }, "rank 5: dp_rank is 0; it must be 1"},
      {"stage", [](Plan& p) { p.ranks[5].pp_rank = 1; }, "rank 5: pp_rank is 1; it must be 0"},
      {"shard", [](Plan& p) { p.ranks[5].tp_rank = 7; }, "rank 5: tp_rank is 7; it must be 1"},
      {"gap", [](Plan& p) { p.ranks[2].layers.begin = 5; }, "rank 2: layers' begin is 5"},
      {"overlap", [](Plan& p) { p.ranks[3].layers.begin = 3; }, "rank 3: layers' begin is 3"},
      {"no layers", [](Plan& p) { p.ranks[0].layers.end = 0; }, "rank 0: layers' end is 0"},
      {"shards differ", [](Plan& p) { p.ranks[1].layers.end = 5; }, "rank 1: layers' end is 5"},
      {"layer missing", [](Plan& p) { p.ranks[6].layers.end = p.ranks[7].layers.end = 7; },
       "layers 0 to 6"},
      {"layer too many", [](Plan& p) { p.ranks[6].layers.end = p.ranks[7].layers.end = 9; },
       "layers 0 to 8"},
      {"threads", [](Plan& p) { p.ranks[4].threads = 0; }, "rank 4: threads is 0"},
      {"many threads", [](Plan& p) { p.ranks[4].threads = 5000; }, "threads is 5000"},
      {"weights", [](Plan& p) { p.ranks[4].weight_bytes = 0; }, "weight_bytes is 0"},
      {"KV", [](Plan& p) { p.ranks[4].kv_bytes = -1; }, "kv_bytes is -1"},
      {"Memory", [](Plan& p) { p.ranks[4].memory_bytes = -1; }, "memory_bytes is -1"},
      {"LessThanKV", [](Plan& p) { p.ranks[4].memory_bytes = 1; }, "memory_bytes is 1"},
      {"OfHost", [](Plan& p) { p.ranks[4].host_bytes = -1; }, "host_bytes is -1"},
      {"micro-batches", [](Plan& p) { p.micro_batches = 0; }, "micro_batches is 0"},
      {"sequences", [](Plan& p) { p.max_num_seqs = 0; }, "max_num_seqs is 0"},
      {"rows", [](Plan& p) { p.max_micro_batch_rows = 0; }, "max_micro_batch_rows is 0"},
      {"many rows", [](Plan& p) { p.max_micro_batch_rows = kMax; }, "max_micro_batch_rows is 2147"},
      {"no step", [](Plan& p) { p.max_num_batched_tokens = 0; },
       "max_num_batched_tokens is 0; it must be from 16 to 512"},
      {"short step", [](Plan& p) { p.max_num_batched_tokens = 15; },
       "max_num_batched_tokens is 15"},
      {"long step", [](Plan& p) { p.max_num_batched_tokens = 513; },
       "max_num_batched_tokens is 513"},
      {"page size", [](Plan& p) { p.page_size = 0; }, "page_size is 0"},
      {"pages", [](Plan& p) { p.pages = -1; }, "pages is -1"},
      {"many pages", [](Plan& p) { p.pages = int64_t{1} << 40; }, "pages is 1099511627776"},
      {"few pages", [](Plan& p) { p.pages = 63; }, "63 of 16 tokens"},
      {"swap pages", [](Plan& p) { p.swap_pages = -1; }, "swap_pages is -1"},
      {"many swap pages", [](Plan& p) { p.swap_pages = int64_t{1} << 31; },
       "swap_pages is 2147483"},
      {"deterministic", [](Plan& p) { p = GoodPlan({3, 1, 1}), p.deterministic = true; },
       "deterministic, with a tp_size of 3"},
      {"no context", [](Plan& p) { p.context_length = 0; }, "context_length is 0"},
      {"long context", [](Plan& p) { p.context_length = 1025; }, "from 1 to 1024"},
  };
  for (const Case& c : cases) {
    Plan plan = GoodPlan();
    c.spoil(plan);
    EXPECT_THAT(ValidatePlan(plan, Bard()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("plan: "), HasSubstr(c.words))))
        << c.name;
  }
}

TEST(ValidatePlan, TakesAnyNumberOfMicroBatches) {
  for (const int32_t micro_batches : {1, 2, 3}) {  // fewer sequences than stages; one more
    Plan plan = GoodPlan();
    plan.micro_batches = micro_batches;
    SKEIN_EXPECT_OK(ValidatePlan(plan, Bard()));
  }
}

TEST(ValidatePlan, WantsPagesForOneSequence) {
  Plan plan = GoodPlan();
  plan.pages = 60;  // of 16 tokens, and 1024 are the context
  model::ModelConfig model = Bard();
  EXPECT_THAT(ValidatePlan(plan, model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("one sequence of 1024 tokens (context_length) needs 64")));
  model.windows.assign(model.num_layers, 100);
  SKEIN_EXPECT_OK(ValidatePlan(plan, model));  // 99 positions and a step's 512: 40
  plan.pages = 39;
  EXPECT_THAT(ValidatePlan(plan, model),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs 40")));
}

TEST(ValidatePlan, RefusesShardsThatTheModelCannotHave) {
  EXPECT_THAT(ValidatePlan(GoodPlan({8, 1, 1}), Bard()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 heads")));
  SKEIN_EXPECT_OK(CheckPlan(GoodPlan({8, 1, 1})));  // the model is not its business
}

TEST(FormatPlan, IsATable) {
  Plan plan = GoodPlan({2, 2, 1});
  plan.hop_dtype = DType::kF16;
  plan.deterministic = true;
  plan.reasons = {"It is short.",
                  "This sentence is longer than a line of the table and is therefore broken at a "
                  "blank, so that it can be read in a terminal."};
  EXPECT_EQ(FormatPlan(plan), R"(plan tp=2,pp=2,dp=1 of bard for job ab12 of 4 ranks
 rank  replica  stage  shard     layers  threads     weights          KV      in all
    0        0      0      0        0-3        1     1.5 MiB     4.0 MiB     9.5 MiB
    1        0      0      1        0-3        1     1.5 MiB     4.0 MiB     9.5 MiB
    2        0      1      0        4-7        1     1.5 MiB     4.0 MiB     9.5 MiB
    3        0      1      1        4-7        1     1.5 MiB     4.0 MiB     9.5 MiB
limits of a replica
- 16 sequences at once, of at most 1024 tokens
- steps of at most 512 tokens, in micro-batches of at most 256, decodes in 2
- activations in f16 from stage to stage
- 1024 pages of 16 tokens in f32
- deterministic: bits depend neither on the batch nor on the layout
why
- It is short.
- This sentence is longer than a line of the table and is therefore broken at a blank, so that
  it can be read in a terminal.
)");
}

TEST(FormatPlan, SaysWhatTheCacheKeepsAndWhatIsSwapped) {
  Plan plan = GoodPlan({1, 1, 1});
  plan.micro_batches = 1;
  plan.max_num_batched_tokens = 200;
  plan.kv_dtype = KvDType::kInt8;
  plan.swap_pages = 77;
  EXPECT_THAT(FormatPlan(plan),
              AllOf(HasSubstr("- steps of at most 200 tokens, in one micro-batch\n"),
                    HasSubstr("- 1024 pages of 16 tokens in int8, and 77 to swap to\n")));
}

TEST(FormatPlan, FitsATerminalWhateverTheNumbers) {
  Plan plan = GoodPlan({4, 8, 32});
  for (RankPlan& rank : plan.ranks) {
    rank.layers = {1000, 1001};
    rank.weight_bytes = rank.kv_bytes = rank.memory_bytes = (int64_t{1} << 40) - 1;
  }
  std::istringstream lines(FormatPlan(plan));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 96u) << line;
}

}  // namespace
}  // namespace skein::plan
