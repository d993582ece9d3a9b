// Whatever a replica does to serve many requests at once — sharing prefixes, answers to one prompt,
// giving way for lack of pages, swapping, planning ahead — changes no token of any answer, and no
// bit of the logits that it was drawn from.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/late_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

using serving::RequestId;

constexpr const char* kBard = "checkpoints/bard";
constexpr int kRequests = 24;

// What makes the next token depend on more than the last logits: on the answer so far, on its
// length, and on mirostat's state. Every fourth request takes all of it, has two answers at least,
// and gives way first.
void AddSampling(int i, int64_t vocab_size, serving::Request& request) {
  serving::SamplingParams& sampling = request.sampling;
  if (i % 4 == 1) {
    if (request.answers.size() < 2) request.answers.resize(2);
    request.priority = -1;
    request.max_tokens += 12;
    sampling.mirostat_tau = 3.0f;
    sampling.mirostat_eta = 0.3f;
  }
  if (i % 4 == 3) sampling.typical_p = 0.7f;
  if (i % 4 == 1 || i % 3 == 0) {
    sampling.dry_multiplier = 2.0f;
    sampling.dry_allowed_length = 1;
    sampling.logit_bias = {{.id = 5, .bias = 4.0f}, {.id = 40, .bias = -9.0f}};
  }
  if (i % 4 == 1 || i % 3 == 1) {
    sampling.min_tokens = 6;
    for (int32_t id = 0; id < vocab_size; id += 300) sampling.stop_ids.push_back(id);
    request.eos_token_ids = sampling.stop_ids;
  }
}

// Prompts that begin alike, in five families, and answers of 1 to 40 tokens.
std::vector<serving::Request> Requests(int64_t vocab_size) {
  std::mt19937 random(7);
  std::vector<serving::Request> requests;
  for (int i = 0; i < kRequests; ++i) {
    serving::Request request{.id = serving::RequestId(i + 1),
                             .max_tokens = static_cast<int32_t>(1 + random() % 40)};
    const int family = static_cast<int>(random() % 5);
    const int common = static_cast<int>(random() % 60);
    for (int t = 0; t < common; ++t) {
      request.prompt.push_back(static_cast<int32_t>((t * 131 + family * 29) % vocab_size));
    }
    for (int t = 0; t <= static_cast<int>(random() % 30); ++t) {
      request.prompt.push_back(static_cast<int32_t>(random() % vocab_size));
    }
    request.answers.resize(1 + (random() % 3 == 0 ? random() % 3 : 0));
    request.priority = static_cast<int32_t>(random() % 3);
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = 40 + i;
    AddSampling(i, vocab_size, request);
    for (size_t s = 0; s < request.answers.size(); ++s) {
      request.answers[s].index = static_cast<int32_t>(s);
    }
    // Depends on the prompt, which answers get from each other.
    request.sampling.repetition_penalty = request.answers.size() > 1 ? 1.2f : 1.0f;
    requests.push_back(request);
  }
  return requests;
}

// The logits that each token of an answer was drawn from, by request, answer and position.
using Logits = std::map<std::tuple<serving::RequestId, int32_t, int64_t>, std::vector<float>>;

struct Served {
  LocalReplica::Answers answers;
  Logits logits;
};

Served Serve(LocalReplica& replica, const std::vector<serving::Request>& requests,
             const SchedulerLimits& scheduler) {
  Served served;
  absl::StatusOr<LocalReplica::Answers> answers = replica.Generate(requests, scheduler);
  EXPECT_THAT(answers.status(), IsOk());
  if (!answers.ok()) return served;
  served.answers = *std::move(answers);
  for (const serving::Request& request : requests) {
    for (const serving::AnswerStart& answer : request.answers) {
      const int64_t begin = static_cast<int64_t>(request.prompt.size()) - 1;
      const auto tokens = std::ssize(served.answers.at({request.id, answer.index}));
      // What was drawn ahead, behind an end of text, is no part of the answer.
      for (int64_t position = begin; position < begin + tokens; ++position) {
        served.logits[{request.id, answer.index, position}] =
            replica.logits().at({{request.id, answer.index}, position});
      }
    }
  }
  return served;
}

void ExpectSameBits(const Served& got, const Served& want) {
  EXPECT_EQ(got.answers, want.answers);
  ASSERT_EQ(got.logits.size(), want.logits.size());
  for (const auto& [key, logits] : want.logits) {
    const auto [request, answer, position] = key;
    const auto found = got.logits.find(key);
    ASSERT_NE(found, got.logits.end());
    ASSERT_EQ(found->second.size(), logits.size());
    ASSERT_EQ(std::memcmp(found->second.data(), logits.data(), logits.size() * sizeof(float)), 0)
        << "request " << request << ", answer " << answer << ", position " << position;
  }
}

class ServingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(config_, model::LoadModelConfig(kBard));
    SKEIN_ASSERT_OK_AND_ASSIGN(tensors_, model::OpenTensorSource(kBard));
  }

  std::unique_ptr<LocalReplica> Make(LocalReplicaOptions options) {
    if (!options.make_backend) {
      options.make_backend = [] { return *kernels::MakeCpuBackend({.threads = 1}); };
    }
    auto replica = LocalReplica::Create(config_, *tensors_, options);
    EXPECT_THAT(replica.status(), IsOk());
    return *std::move(replica);
  }

  // Every request in a replica that has computed nothing before, one answer at a time.
  Served Alone(const std::vector<serving::Request>& requests,
               kernels::KvDType kv_dtype = kernels::KvDType::kF32) {
    Served all;
    for (const serving::Request& request : requests) {
      for (const serving::AnswerStart& answer : request.answers) {
        serving::Request alone = request;
        alone.answers = {answer};
        const auto replica = Make({.kv_dtype = kv_dtype, .orders_ahead = 1});
        Served served =
            Serve(*replica, {alone}, {.max_num_batched_tokens = 256, .max_micro_batch_rows = 256});
        all.answers.merge(served.answers);
        all.logits.merge(served.logits);
      }
    }
    return all;
  }

  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
};

TEST_F(ServingTest, NoAnswerDependsOnTheOthers) {
  const std::vector<serving::Request> requests = Requests(config_.vocab_size);
  const Served want = Alone(requests);

  struct Case {
    std::string name;
    LocalReplicaOptions replica;
    SchedulerLimits scheduler;
    PreemptionRates rates;
  };
  const Case cases[] = {
      {"much room",
       {.max_num_seqs = 8},
       {.max_num_batched_tokens = 64, .max_micro_batch_rows = 64},
       {}},
      {"few pages, computed again",
       {.page_size = 8, .pages = 19, .max_num_seqs = 8},
       {.max_num_batched_tokens = 24, .max_micro_batch_rows = 24},
       {}},
      {"few pages, swapped",
       {.page_size = 8, .pages = 19, .swap_pages = 64, .max_num_seqs = 8},
       {.max_num_batched_tokens = 24, .max_micro_batch_rows = 24},
       {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e9}},
      {"tp2 x pp2, few pages, swapped",
       {.layout = {2, 2, 1}, .page_size = 5, .pages = 29, .swap_pages = 20, .max_num_seqs = 6},
       {.max_num_batched_tokens = 40, .micro_batches = 3, .max_micro_batch_rows = 16},
       {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e9}},
      {"pp4, rotating",
       {.layout = {1, 4, 1}, .pages = 64, .max_num_seqs = 8},
       {.max_num_batched_tokens = 64, .micro_batches = 4, .max_micro_batch_rows = 16},
       {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    LocalReplicaOptions options = c.replica;
    options.rates = c.rates;
    const auto replica = Make(options);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Serve(*replica, requests, c.scheduler), want));
    const serving::ReplicaLoad& load = replica->load();
    EXPECT_EQ(load.used_pages, 0);
    EXPECT_EQ(load.free_pages + load.cached_pages, load.total_pages);
    EXPECT_EQ(load.free_swap_pages, load.total_swap_pages);
    EXPECT_GT(load.cached_tokens, 0);
    // The case does what its name says.
    const bool few_pages = options.pages < 64;
    EXPECT_EQ(load.preemptions_swapped > 0, options.swap_pages > 0);
    EXPECT_EQ(load.preemptions_recomputed > 0, few_pages && options.swap_pages == 0);
  }
}

// Steps are prepared while others run, on a device that is behind: what they change takes effect in
// their turn.
TEST_F(ServingTest, NoAnswerDependsOnWhenTheDeviceIsDone) {
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  LocalReplica::Answers want = Alone(requests).answers;
  // Every other answer ends with a token that nobody expects.
  for (size_t i = 0; i < requests.size(); i += 2) {
    const std::vector<int32_t>& answer = want.at({requests[i].id, 0});
    requests[i].eos_token_ids.push_back(answer[answer.size() / 2]);
    for (const serving::AnswerStart& answer : requests[i].answers) {
      std::vector<int32_t>& cut = want.at({requests[i].id, answer.index});
      const auto end = std::find_first_of(cut.begin(), cut.end(), requests[i].eos_token_ids.begin(),
                                          requests[i].eos_token_ids.end());
      if (end != cut.end()) cut.erase(end + 1, cut.end());
    }
  }
  struct Case {
    std::string name;
    plan::Layout layout;
    int64_t pages;
    int64_t swap_pages;
    int32_t micro_batches;
  };
  for (const Case& c : {Case{"much room", {}, 256, 0, 1}, Case{"computed again", {}, 24, 0, 1},
                        Case{"swapped", {}, 24, 64, 1}, Case{"tp2, swapped", {2, 1, 1}, 24, 64, 1},
                        Case{"tp2 x pp2, swapped", {2, 2, 1}, 24, 64, 3}}) {
    SCOPED_TRACE(c.name);
    const auto make_backend = [&] {
      return kernels::MakeLateBackend(*kernels::MakeCpuBackend({.threads = 1}));
    };
    LocalReplicaOptions options{.layout = c.layout,
                                .page_size = 8,
                                .pages = c.pages,
                                .swap_pages = c.swap_pages,
                                .max_num_seqs = 6,
                                .rates = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e9},
                                .observe = false,
                                .make_backend = make_backend};
    const auto replica = Make(options);
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const LocalReplica::Answers answers,
        replica->Generate(requests, {.max_num_batched_tokens = 24 * c.micro_batches,
                                     .micro_batches = c.micro_batches,
                                     .max_micro_batch_rows = 24}));
    EXPECT_EQ(answers, want);
    // What the case is about has come to pass.
    const LocalReplica::Seen& seen = replica->seen();
    EXPECT_GT(seen.surplus_tokens, 0);
    EXPECT_GT(seen.retaken_slots, 0);
    EXPECT_EQ(seen.retaken_pages > 0, c.swap_pages > 0);
  }
}

// Where all layers have a window, pages behind it go to others at once, and texts may be longer
// than all pages are together.
TEST_F(ServingTest, PagesBehindWindowsChangeNoAnswer) {
  constexpr int64_t kWindow = 20;
  config_.windows.assign(config_.num_layers, kWindow);
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  for (int t = 0; t < 200; ++t) {
    requests[0].prompt.push_back(static_cast<int32_t>((t * 37 + 11) % config_.vocab_size));
  }
  const Served want = Alone(requests);  // which gives nothing back: all pages have room

  struct Case {
    std::string name;
    LocalReplicaOptions replica;
    PreemptionRates rates;
  };
  const PreemptionRates swap_is_cheap = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e9};
  const Case cases[] = {
      {"few pages, computed again", {.page_size = 8, .pages = 14}, {}},
      {"few pages, swapped", {.page_size = 8, .pages = 14, .swap_pages = 64}, swap_is_cheap},
      {"tp2 x pp2, swapped",
       {.layout = {2, 2, 1}, .page_size = 5, .pages = 20, .swap_pages = 40},
       swap_is_cheap},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    LocalReplicaOptions options = c.replica;
    options.rates = c.rates;
    const auto replica = Make(options);
    const SchedulerLimits scheduler = {.max_num_batched_tokens = 24,
                                       .micro_batches = 2,
                                       .max_micro_batch_rows = 16,
                                       .window = kWindow};
    ASSERT_GT(std::ssize(requests[0].prompt), options.pages * options.page_size);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Serve(*replica, requests, scheduler), want));
    const serving::ReplicaLoad& load = replica->load();
    EXPECT_EQ(load.used_pages, 0);
    EXPECT_EQ(load.free_pages + load.cached_pages, load.total_pages);
    EXPECT_EQ(load.free_swap_pages, load.total_swap_pages);
    EXPECT_GT(load.cached_tokens, 0);
    EXPECT_EQ(load.preemptions_swapped > 0, options.swap_pages > 0);
    EXPECT_EQ(load.preemptions_recomputed > 0, options.swap_pages == 0);

    // The long prompt's first pages have others' tokens by now; its last window is enough.
    serving::Request again = requests[0];
    again.id = serving::RequestId(100);
    SKEIN_ASSERT_OK(replica->GenerateMore({again}).status());
    const int64_t cached = load.cached_tokens;
    again.id = serving::RequestId(101);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers answers, replica->GenerateMore({again}));
    EXPECT_EQ(load.cached_tokens - cached,
              (std::ssize(again.prompt) - 1) / options.page_size * options.page_size);
    EXPECT_EQ(answers.at({RequestId(101), 0}), want.answers.at({requests[0].id, 0}));
  }
}

// Rounded keys and values are rounded alike, however they came into their pages.
TEST_F(ServingTest, NarrowCachesChangeNoAnswerEither) {
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  requests.resize(10);
  for (const kernels::KvDType dtype : {kernels::KvDType::kBF16, kernels::KvDType::kInt8}) {
    SCOPED_TRACE(static_cast<int>(dtype));
    const Served want = Alone(requests, dtype);
    LocalReplicaOptions options{.layout = {2, 1, 1},
                                .page_size = 8,
                                .pages = 14,
                                .swap_pages = 64,
                                .kv_dtype = dtype,
                                .max_num_seqs = 8};
    options.rates = {.prefill_tokens_per_s = 1, .swap_pages_per_s = 1e9};
    const auto replica = Make(options);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
        Serve(*replica, requests, {.max_num_batched_tokens = 24, .max_micro_batch_rows = 24}),
        want));
    EXPECT_GT(replica->load().preemptions_swapped, 0);
    EXPECT_GT(replica->load().cached_tokens, 0);
  }
}

// Serves `asked`, whose log probabilities are wanted, when all of its prompt is in the prefix
// cache: another request takes it from there, but `asked` takes nothing, since rows that are not
// computed have no logits.
void ServeBesideItsCachedPrompt(LocalReplica& replica, const serving::Request& asked) {
  serving::Request other = asked;
  other.prompt_logprobs = -1;
  const auto cached_of = [&replica](const serving::Request& request) {
    const int64_t before = replica.load().cached_tokens;
    EXPECT_THAT(replica.GenerateMore({request}).status(), IsOk());
    return replica.load().cached_tokens - before;
  };
  other.id = serving::RequestId(100);
  cached_of(other);
  other.id = serving::RequestId(101);
  EXPECT_EQ(cached_of(other), (std::ssize(asked.prompt) - 1) / 8 * 8);
  EXPECT_EQ(cached_of(asked), 0);
}

// However the prompt is cut, and whoever else runs: the log probabilities of its tokens are those
// of logits that were computed one row at a time.
TEST_F(ServingTest, PromptLogprobsAreThoseOfEveryRow) {
  std::vector<serving::Request> requests = Requests(config_.vocab_size);
  requests.resize(6);
  for (serving::Request& request : requests) request.answers.resize(1);
  serving::Request& asked = *std::max_element(
      requests.begin(), requests.end(),
      [](const auto& a, const auto& b) { return a.prompt.size() < b.prompt.size(); });
  asked.prompt_logprobs = 2;
  ASSERT_GT(asked.prompt.size(), 20u);

  // Each row by itself, as a sampling chunk, so that its logits are observed.
  const auto rows = Make({});
  kernels::SlotUpdate update;
  for (int32_t page = 0; page < 16; ++page) update.pages.push_back(page);
  for (size_t i = 0; i < asked.prompt.size(); ++i) {
    StepOrder order{.step = static_cast<int64_t>(i)};
    if (i == 0) {
      order.starts = {{.sampling = {.temperature = 0}}};
      order.updates = {update};
    }
    order.micro_batches = {{{.tokens = {asked.prompt[i]}, .draws = true}}};
    SKEIN_ASSERT_OK(rows->Run(order));
  }

  for (const plan::Layout& layout : {plan::Layout{1, 1, 1}, plan::Layout{2, 2, 1}}) {
    SCOPED_TRACE(layout.ToString());
    const auto replica = Make({.layout = layout, .page_size = 8, .pages = 24, .max_num_seqs = 6});
    const SchedulerLimits scheduler = {.max_num_batched_tokens = 40,
                                       .logit_rows = 9,
                                       .micro_batches = 2,
                                       .max_micro_batch_rows = 20};
    for (int run = 0; run < 2; ++run) {
      if (run == 0) {
        SKEIN_ASSERT_OK(replica->Generate(requests, scheduler));
      } else {
        ASSERT_NO_FATAL_FAILURE(ServeBesideItsCachedPrompt(*replica, asked));
      }
      const auto& got = replica->prompt_logprobs().at(asked.id);
      ASSERT_EQ(got.size(), (run + 1) * (asked.prompt.size() - 1));
      for (size_t i = 1; i < asked.prompt.size(); ++i) {
        const auto& logits = rows->logits().at({{RequestId(0), 0}, static_cast<int64_t>(i) - 1});
        const auto& token = got[run * (asked.prompt.size() - 1) + i - 1];
        double sum = 0;
        for (float logit : logits) sum += std::exp(static_cast<double>(logit));
        EXPECT_EQ(token.id, asked.prompt[i]);
        EXPECT_NEAR(token.logprob, logits[asked.prompt[i]] - std::log(sum), 1e-4);
        EXPECT_EQ(token.top_logprobs.size(), 2u);
      }
    }
  }
}

// One replica, two clients one after the other.
TEST_F(ServingTest, APromptIsServedFromThePrefixCacheTheSecondTimeWithTheSameBits) {
  constexpr int64_t kPageSize = 8;
  serving::Request request{.id = serving::RequestId(1), .max_tokens = 12};
  for (int t = 0; t < 45; ++t) {
    request.prompt.push_back(static_cast<int32_t>((t * 131 + 29) % config_.vocab_size));
  }
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 9;
  const Served want = Alone({request});
  ASSERT_EQ(want.answers.at({RequestId(1), 0}).size(), 12u);

  for (const plan::Layout& layout : {plan::Layout{1, 1, 1}, plan::Layout{2, 2, 1}}) {
    SCOPED_TRACE(layout.ToString());
    const auto replica = Make({.layout = layout, .page_size = kPageSize, .pages = 24});
    const SchedulerLimits scheduler = {
        .max_num_batched_tokens = 32, .micro_batches = 2, .max_micro_batch_rows = 32};
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Serve(*replica, {request}, scheduler), want));
    EXPECT_EQ(replica->load().cached_tokens, 0);
    EXPECT_EQ(replica->load().prompt_tokens, 45);

    serving::Request again = request;
    again.id = serving::RequestId(2);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LocalReplica::Answers answers, replica->GenerateMore({again}));
    EXPECT_EQ(replica->load().cached_tokens, 5 * kPageSize);
    EXPECT_EQ(replica->load().prompt_tokens, 2 * 45);
    EXPECT_EQ(answers.at({RequestId(2), 0}), want.answers.at({RequestId(1), 0}));
    for (const auto& [key, logits] : want.logits) {
      const auto& got = replica->logits().at({{RequestId(2), 0}, std::get<2>(key)});
      ASSERT_EQ(std::memcmp(got.data(), logits.data(), logits.size() * sizeof(float)), 0)
          << "position " << std::get<2>(key);
    }
  }
}

}  // namespace
}  // namespace skein::worker
