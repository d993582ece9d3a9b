// A request that moves in the middle of its answer to a replica of another layout goes on with the
// bits of an undisturbed run. What moves is what a coordinator's journal has: the tokens so far,
// and mirostat's state after them.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "tests/engine/local_replica.h"

namespace skein::worker {
namespace {

constexpr const char* kBard = "checkpoints/bard";
constexpr int64_t kMaxTokens = 30;

struct SamplingCase {
  std::string name;
  serving::SamplingParams sampling;
};

std::vector<SamplingCase> SamplingCases() {
  const serving::SamplingParams greedy = {.temperature = 0};
  serving::SamplingParams penalties = {.repetition_penalty = 1.3f,
                                       .presence_penalty = 0.4f,
                                       .frequency_penalty = 0.3f,
                                       .temperature = 0.9f,
                                       .top_k = 40,
                                       .top_p = 0.9f,
                                       .seed = 11};
  serving::SamplingParams mirostat = {.repetition_penalty = 1.2f,
                                      .frequency_penalty = 0.2f,
                                      .temperature = 0.9f,
                                      .seed = 12,
                                      .mirostat_tau = 3.0f,
                                      .mirostat_eta = 0.3f};
  mirostat.dry_multiplier = 1.5f;
  mirostat.dry_allowed_length = 1;
  return {{"greedy", greedy}, {"penalties", penalties}, {"mirostat", mirostat}};
}

using AnswerId = std::pair<serving::RequestId, int32_t>;
using Row = std::pair<AnswerId, int64_t>;  // an answer, and the position that its token follows

struct Served {
  std::map<AnswerId, std::vector<int32_t>> tokens;
  LocalReplica::Sampled sampled;
  std::map<Row, std::vector<float>> logits;
};

class MoveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(config_, model::LoadModelConfig(kBard));
    SKEIN_ASSERT_OK_AND_ASSIGN(tensors_, model::OpenTensorSource(kBard));
  }

  // Every kind of sampling twice, each with two answers.
  std::vector<serving::Request> Requests() const {
    std::vector<serving::Request> requests;
    for (const int64_t length : {19, 40}) {
      for (const SamplingCase& c : SamplingCases()) {
        serving::Request request{.id = serving::RequestId(requests.size() + 1),
                                 .max_tokens = kMaxTokens};
        for (int64_t t = 0; t < length; ++t) {
          request.prompt.push_back(
              static_cast<int32_t>((t * 131 + length * 7) % config_.vocab_size));
        }
        request.answers = {{.index = 0}, {.index = 1}};
        request.sampling = c.sampling;
        requests.push_back(request);
      }
    }
    return requests;
  }

  Served Serve(const plan::Layout& layout, const std::vector<serving::Request>& requests) {
    LocalReplicaOptions options{.layout = layout, .page_size = 8, .max_num_seqs = 6};
    options.make_backend = [] { return *kernels::MakeCpuBackend({.threads = 1}); };
    auto replica = LocalReplica::Create(config_, *tensors_, options);
    EXPECT_THAT(replica.status(), IsOk());
    auto answers = (*replica)->Generate(
        requests, {.max_num_batched_tokens = 48, .micro_batches = 2, .max_micro_batch_rows = 32});
    EXPECT_THAT(answers.status(), IsOk());
    Served served{.tokens = *answers, .sampled = (*replica)->sampled(), .logits = {}};
    for (const serving::Request& request : requests) {
      for (const serving::AnswerStart& answer : request.answers) {
        const AnswerId id = {request.id, answer.index};
        const auto before = std::ssize(request.prompt) + std::ssize(answer.output);
        for (int64_t i = 0; i < std::ssize(served.tokens.at(id)); ++i) {
          const int64_t position = before + i - 1;
          served.logits[{id, position}] = (*replica)->logits().at({id, position});
        }
      }
    }
    return served;
  }

  // The first `given` tokens came from another replica, which served `from`.
  static std::vector<serving::Request> Moved(std::vector<serving::Request> requests,
                                             const Served& from, size_t given) {
    for (serving::Request& request : requests) {
      for (serving::AnswerStart& answer : request.answers) {
        const AnswerId id = {request.id, answer.index};
        // The second answer of a request is one token ahead of the first.
        const size_t count = given + static_cast<size_t>(answer.index);
        const std::vector<int32_t>& tokens = from.tokens.at(id);
        answer.output.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count));
        if (request.sampling.mirostat_tau > 0) answer.mu = from.sampled.at(id)[count - 1].mu;
      }
    }
    return requests;
  }

  model::ModelConfig config_;
  std::unique_ptr<model::TensorSource> tensors_;
};

TEST_F(MoveTest, AnAnswerGoesOnInAnotherLayoutWithTheBitsOfAnUndisturbedOne) {
  const plan::Layout tp2 = {2, 1, 1}, pp2 = {1, 2, 1};
  const std::vector<serving::Request> requests = Requests();
  const Served on_tp2 = Serve(tp2, requests), on_pp2 = Serve(pp2, requests);
  ASSERT_EQ(on_tp2.tokens.size(), 2 * requests.size());
  EXPECT_EQ(on_tp2.tokens, on_pp2.tokens);
  // What is to go on is not what would come in any case.
  EXPECT_NE(on_tp2.tokens.at({serving::RequestId(1), 0}),
            on_tp2.tokens.at({serving::RequestId(2), 0}));
  EXPECT_NE(on_tp2.tokens.at({serving::RequestId(2), 0}),
            on_tp2.tokens.at({serving::RequestId(2), 1}));

  for (const size_t given : {1, 13, 28}) {
    for (const bool to_pp2 : {true, false}) {
      SCOPED_TRACE(
          absl::StrCat(given, " tokens from ", to_pp2 ? "tp2, then pp2" : "pp2, then tp2"));
      const Served& from = to_pp2 ? on_tp2 : on_pp2;
      const Served& undisturbed = to_pp2 ? on_pp2 : on_tp2;
      const Served got = Serve(to_pp2 ? pp2 : tp2, Moved(requests, from, given));
      for (const auto& [id, rest] : got.tokens) {
        std::vector<int32_t> whole = from.tokens.at(id);
        whole.resize(given + static_cast<size_t>(id.second));
        whole.insert(whole.end(), rest.begin(), rest.end());
        EXPECT_EQ(whole, undisturbed.tokens.at(id))
            << "request " << id.first << ", answer " << id.second;
      }
      EXPECT_EQ(got.logits.size(), requests.size() * (2 * (kMaxTokens - given) - 1));
      for (const auto& [row, logits] : got.logits) {
        const std::vector<float>& want = undisturbed.logits.at(row);
        ASSERT_EQ(std::memcmp(logits.data(), want.data(), want.size() * sizeof(float)), 0)
            << "request " << row.first.first << ", position " << row.second;
      }
    }
  }
}

}  // namespace
}  // namespace skein::worker
