// With --deterministic a GPU's answers have the same bits whatever is computed beside them, and in
// every layout.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/device_testing.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

// All that is told of a token, bits included.
struct Told {
  int32_t id = 0;
  float logprob = 0;
  std::vector<serving::TokenLogprob> top;

  friend bool operator==(const Told&, const Told&) = default;
};

struct Served {
  std::map<LocalReplica::AnswerId, std::vector<Told>> answers;
  std::map<serving::RequestId, std::vector<Told>> prompts;

  friend bool operator==(const Served&, const Served&) = default;
};

std::vector<Told> ToldOf(const std::vector<serving::SampledToken>& tokens) {
  std::vector<Told> told;
  for (const serving::SampledToken& token : tokens) {
    told.push_back({token.id, token.logprob, token.top_logprobs});
  }
  return told;
}

// Greedy, and by chance in every way that sums over the vocabulary.
std::vector<serving::SamplingParams> WaysToDraw() {
  return {{.temperature = 0},
          {},
          {.temperature = 0.9f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f},
          {.repetition_penalty = 1.1f, .temperature = 0.8f, .typical_p = 0.9f},
          {.mirostat_tau = 4},
          {.presence_penalty = 0.4f,
           .frequency_penalty = 0.2f,
           .temperature = 1.2f,
           .logit_bias = {{5, 1.5f}, {70, -2}},
           .dry_multiplier = 0.8f}};
}

std::vector<serving::Request> Requests(int64_t vocab_size) {
  const std::vector<serving::SamplingParams> ways = WaysToDraw();
  std::vector<serving::Request> requests;
  for (int i = 0; i < 12; ++i) {
    serving::Request request{.id = serving::RequestId(i + 1), .max_tokens = 48};
    const int length = i < 4 ? 1 + i : 5 + i * i;
    for (int t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 131 + i * 29 + 7) % vocab_size));
    }
    request.sampling = ways[i % ways.size()];
    request.sampling.seed = 5;
    request.sampling.logprobs = i < 6 ? 3 : 0;
    request.prompt_logprobs = 1;
    requests.push_back(request);
  }
  return requests;
}

class CudaDeterministicTest : public testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    SKEIN_ASSERT_OK_AND_ASSIGN(config_, model::LoadModelConfig("checkpoints/bard"));
    SKEIN_ASSERT_OK_AND_ASSIGN(tensors_, model::OpenTensorSource("checkpoints/bard"));
    const auto tried = OnGpu({.kv_dtype = kernels::KvDType::kBF16, .deterministic = true});
    if (absl::IsUnimplemented(tried.status())) {
      EXPECT_THAT(std::string(tried.status().message()),
                  testing::HasSubstr("--deterministic: needs"));
      GTEST_SKIP() << "no Hopper form";
    }
    SKEIN_ASSERT_OK(tried.status());
  }

  absl::StatusOr<std::unique_ptr<LocalReplica>> OnGpu(LocalReplicaOptions options) {
    options.device = DeviceKind::kCuda;
    options.hop_dtype = DType::kBF16;
    options.observe = false;
    options.make_backend = [] { return *kernels::MakeCudaBackend({.threads = 2}); };
    options.make_copies = [] { return *kernels::MakeCudaCopies(0); };
    return LocalReplica::Create(config_, *tensors_, options);
  }

  Served Serve(const LocalReplicaOptions& options, const SchedulerLimits& limits) {
    const auto replica = *OnGpu(options);
    const auto answers = replica->Generate(Requests(config_.vocab_size), limits);
    EXPECT_THAT(answers.status(), IsOk());
    load_ = replica->load();
    return ServedBy(*replica);
  }
  static Served ServedBy(const LocalReplica& replica) {
    Served served;
    for (const auto& [id, tokens] : replica.sampled()) served.answers[id] = ToldOf(tokens);
    for (const auto& [id, tokens] : replica.prompt_logprobs()) served.prompts[id] = ToldOf(tokens);
    return served;
  }

  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
  serving::ReplicaLoad load_;
};

constexpr SchedulerLimits kTogether = {
    .max_num_batched_tokens = 100, .logit_rows = 100, .max_micro_batch_rows = 100};
constexpr SchedulerLimits kAlone = {
    .max_num_batched_tokens = 24, .logit_rows = 24, .max_micro_batch_rows = 24};

LocalReplicaOptions Together(kernels::KvDType kv_dtype) {
  return {.pages = 1024, .kv_dtype = kv_dtype, .deterministic = true, .max_num_seqs = 12};
}
constexpr kernels::KvDType kCaches[] = {kernels::KvDType::kBF16, kernels::KvDType::kInt8};

TEST_F(CudaDeterministicTest, BatchesLeaveBitsAlone) {
  for (const kernels::KvDType cache : kCaches) {
    SCOPED_TRACE(static_cast<int>(cache));
    const LocalReplicaOptions together = Together(cache);
    const Served first = Serve(together, kTogether);
    ASSERT_EQ(first.answers.size(), 12u);
    ASSERT_EQ(first.prompts.at(serving::RequestId(12)).size(), 5 + 11 * 11 - 1u);
    EXPECT_TRUE(Serve(together, kTogether) == first) << "a second time";
    LocalReplicaOptions alone = together;
    alone.max_num_seqs = 1;
    EXPECT_TRUE(Serve(alone, kAlone) == first) << "one after the other, in short pieces";
    // What was decoded is computed again as a prompt, or comes back from the host.
    LocalReplicaOptions crowded = together;
    crowded.pages = 20;
    EXPECT_TRUE(Serve(crowded, kTogether) == first) << "with sequences that give way";
    EXPECT_GT(load_.preemptions_recomputed, 0);
    crowded.swap_pages = 64;
    crowded.rates = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e6};
    EXPECT_TRUE(Serve(crowded, kTogether) == first) << "with pages that are swapped";
    EXPECT_GT(load_.preemptions_swapped, 0);

    LocalReplicaOptions fast = together;
    fast.deterministic = alone.deterministic = false;
    EXPECT_FALSE(Serve(fast, kTogether) == Serve(alone, kAlone))
        << "it would be so without: this test says nothing";
  }
}

// Pages that another request with the same prompt has computed.
TEST_F(CudaDeterministicTest, SharedPrefixesLeaveBitsAlone) {
  const auto replica = *OnGpu(Together(kernels::KvDType::kBF16));
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  for (serving::Request& request : requests) request.prompt_logprobs = -1;  // computes all of it
  SKEIN_ASSERT_OK(replica->Generate(requests, kTogether).status());
  const Served first = ServedBy(*replica);
  for (serving::Request& request : requests)
    request.id = serving::RequestId(100 + request.id.value());
  SKEIN_ASSERT_OK(replica->GenerateMore(requests).status());
  EXPECT_GT(replica->load().cached_tokens, 0);
  const Served both = ServedBy(*replica);
  for (int i = 1; i <= 12; ++i) {
    EXPECT_TRUE(both.answers.at({serving::RequestId(100 + i), 0}) ==
                first.answers.at({serving::RequestId(i), 0}))
        << i;
  }
}

TEST_F(CudaDeterministicTest, LayoutsLeaveBitsAlone) {
  const auto layouts = {plan::Layout{.tp_size = 2}, plan::Layout{.tp_size = 4},
                        plan::Layout{.pp_size = 2}, plan::Layout{.tp_size = 2, .pp_size = 2}};
  for (const kernels::KvDType cache : kCaches) {
    const LocalReplicaOptions options = Together(cache);
    const Served one = Serve(options, kTogether);
    const auto serve = [&](LocalReplicaOptions other, const plan::Layout& layout) {
      other.layout = layout;
      SchedulerLimits limits = kTogether;
      limits.stages = limits.micro_batches = layout.pp_size;
      return Serve(other, limits);
    };
    for (const plan::Layout& layout : layouts) {
      EXPECT_TRUE(serve(options, layout) == one)
          << "tp " << layout.tp_size << ", pp " << layout.pp_size;
    }
    LocalReplicaOptions fast = options;
    fast.deterministic = false;
    EXPECT_FALSE(serve(fast, {}) == serve(fast, {.tp_size = 2}))
        << "it would be so without: this test says nothing";
  }
}

}  // namespace
}  // namespace skein::worker
