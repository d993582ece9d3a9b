// Every layout computes the same bits, also in the last one.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

struct LayoutCase {
  std::string name;
  std::string folder;
  plan::Layout layout;
  int32_t sequences = 1;  // at once
  int32_t micro_batches = 1;
  int32_t micro_batch_rows = 256;
  int threads = 1;
  int64_t page_size = 16;
};

void PrintTo(const LayoutCase& c, std::ostream* out) { *out << c.name; }

std::vector<serving::Request> Requests(int64_t vocab_size) {
  std::vector<serving::Request> requests;
  const int lengths[] = {1, 5, 37, 70};
  for (int i = 0; i < 4; ++i) {
    serving::Request request{.id = serving::RequestId(i + 1), .max_tokens = 8};
    for (int t = 0; t < lengths[i]; ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 131 + i * 29 + 7) % vocab_size));
    }
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = 40 + i;
    request.sampling.top_p = 0.95f;
    requests.push_back(request);
  }
  return requests;
}

struct Outcome {
  LocalReplica::Answers answers;
  LocalReplica::Logits logits;
};

Outcome RunLayout(const LayoutCase& c, bool reference = false) {
  Outcome outcome;
  const auto config = model::LoadModelConfig(c.folder);
  EXPECT_THAT(config, IsOk());
  auto tensors = model::OpenTensorSource(c.folder);
  EXPECT_THAT(tensors, IsOk());
  LocalReplicaOptions options{
      .layout = c.layout, .page_size = c.page_size, .max_num_seqs = c.sequences};
  options.make_backend = [&]() -> std::unique_ptr<kernels::Backend> {
    if (reference) return kernels::MakeReferenceBackend();
    return *kernels::MakeCpuBackend({.threads = c.threads});
  };
  auto replica = LocalReplica::Create(*config, **tensors, options);
  EXPECT_THAT(replica, IsOk());
  if (!replica.ok()) return outcome;
  auto answers = (*replica)->Generate(
      Requests(config->vocab_size), {.max_num_batched_tokens = c.micro_batches * c.micro_batch_rows,
                                     .stages = c.micro_batches,
                                     .micro_batches = c.micro_batches,
                                     .max_micro_batch_rows = c.micro_batch_rows});
  EXPECT_THAT(answers, IsOk());
  if (answers.ok()) outcome = {*answers, (*replica)->logits()};
  return outcome;
}

// The most unlike run to compare with: one rank, one sequence at a time, whole prompts.
const Outcome& Alone(const std::string& folder) {
  static auto* outcomes = new std::map<std::string, Outcome>;
  auto [it, is_new] = outcomes->try_emplace(folder);
  if (is_new) {
    it->second = RunLayout({.name = "alone", .folder = folder, .layout = {}});
  }
  return it->second;
}

class LayoutTest : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(LayoutTest, GivesTheBitsOfOneRank) {
  const Outcome got = RunLayout(GetParam());
  const Outcome& want = Alone(GetParam().folder);
  ASSERT_EQ(want.answers.size(), 4u);
  EXPECT_EQ(got.answers, want.answers);
  ASSERT_EQ(got.logits.size(), want.logits.size());
  for (const auto& [key, logits] : want.logits) {
    const auto it = got.logits.find(key);
    ASSERT_NE(it, got.logits.end());
    ASSERT_EQ(it->second.size(), logits.size());
    EXPECT_EQ(std::memcmp(it->second.data(), logits.data(), logits.size() * sizeof(float)), 0)
        << "request " << key.first.first << ", position " << key.second;
  }
}

constexpr const char* kBard = "checkpoints/bard";
// 8 heads, so that 8 shards are possible.
constexpr const char* kEightHeads = "tests/golden/models/eight-ways";

INSTANTIATE_TEST_SUITE_P(
    Layouts, LayoutTest,
    ::testing::Values(LayoutCase{"batched", kBard, {1, 1, 1}, 4, 1, 256},
                      LayoutCase{"chunked_odd_pages", kBard, {1, 1, 1}, 3, 1, 11, 1, 7},
                      LayoutCase{"threads", kBard, {1, 1, 1}, 4, 1, 256, 3},
                      LayoutCase{"tp2", kBard, {2, 1, 1}, 4, 1, 64},
                      LayoutCase{"tp4", kBard, {4, 1, 1}, 4, 1, 64},
                      LayoutCase{"pp2", kBard, {1, 2, 1}, 4, 2, 64},
                      LayoutCase{"pp3_uneven", kBard, {1, 3, 1}, 4, 4, 20},
                      LayoutCase{"pp8", kBard, {1, 8, 1}, 4, 8, 64},
                      LayoutCase{"tp2_pp2", kBard, {2, 2, 1}, 2, 2, 16, 1, 5},
                      LayoutCase{"tp4_pp2", kBard, {4, 2, 1}, 4, 2, 64},
                      LayoutCase{"wide_tp2", kEightHeads, {2, 1, 1}, 4, 1, 64},
                      LayoutCase{"wide_tp8", kEightHeads, {8, 1, 1}, 4, 1, 64},
                      LayoutCase{"wide_tp2_pp4", kEightHeads, {2, 4, 1}, 4, 4, 64}),
    [](const auto& info) { return info.param.name; });

// The CPU's answers are held against the reference's: greedy ones agree.
TEST(BackendTest, ReferenceGivesTheSameGreedyAnswers) {
  const LayoutCase c = {"reference", kBard, {1, 1, 1}, 4, 1, 256};
  const Outcome got = RunLayout(c, /*reference=*/true);
  const Outcome& want = Alone(kBard);
  for (const serving::RequestId id : {serving::RequestId(1), serving::RequestId(3)})
    EXPECT_EQ(got.answers.at({id, 0}), want.answers.at({id, 0}));
}

// Half the bytes between stages, for a rounding of the activations there.
TEST(HopDTypeTest, HopsAreAsThePlanSays) {
  constexpr const char* kBard = "checkpoints/bard";
  SKEIN_ASSERT_OK_AND_ASSIGN(const model::ModelConfig config, model::LoadModelConfig(kBard));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tensors, model::OpenTensorSource(kBard));
  serving::Request request{
      .id = serving::RequestId(1), .prompt = {5, 6, 7, 8, 9, 10, 11}, .max_tokens = 1};
  LocalReplica::Logits logits[2];
  int64_t bytes[2];
  for (const bool narrow : {false, true}) {
    LocalReplicaOptions options{.layout = {2, 2, 1},
                                .hop_dtype = narrow ? DType::kBF16 : DType::kF32};
    options.make_backend = [] { return *kernels::MakeCpuBackend({.threads = 1}); };
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto replica, LocalReplica::Create(config, *tensors, options));
    SKEIN_ASSERT_OK(
        replica->Generate({request}, {.max_num_batched_tokens = 64, .max_micro_batch_rows = 64}));
    logits[narrow] = replica->logits();
    bytes[narrow] = replica->hop_bytes();
  }
  EXPECT_EQ(bytes[0], 7 * config.hidden_size * 4);
  EXPECT_EQ(bytes[1], bytes[0] / 2);
  const std::vector<float>& wide = logits[0].begin()->second;
  const std::vector<float>& narrow = logits[1].begin()->second;
  double error = 0, norm = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    error += std::pow(double{wide[i]} - narrow[i], 2);
    norm += std::pow(double{wide[i]}, 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LT(std::sqrt(error / norm), 0x1p-6);  // one rounding to 8 bits, through four layers
}

}  // namespace
}  // namespace skein::worker
