// The draws of the CUDA back end against the sampler, from the logits that it has computed.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {
namespace {

// Of one that the device made: the sums in it may differ in their last bits.
void ExpectSame(const serving::SampledToken& got, const serving::SampledToken& want) {
  const auto near = [](float a, float b) {
    if (a != b) {
      EXPECT_NEAR(a, b, 1e-6f * (1 + std::abs(b)));
    }
  };
  EXPECT_EQ(got.id, want.id);
  near(got.logprob, want.logprob);
  near(got.mu, want.mu);
  ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size());
  for (size_t i = 0; i < want.top_logprobs.size(); ++i) {
    EXPECT_EQ(got.top_logprobs[i].id, want.top_logprobs[i].id);
    near(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob);
  }
}

// Draws of all kinds, made on the device and by the host, alone and beside each other, are those
// that the sampler makes of the same logits.
TEST_F(CudaBackendTest, DrawsAreTheSamplersOfTheseLogits) {
  const std::vector<serving::SamplingParams> params = {
      {.temperature = 0},
      {.temperature = 0.8f, .top_k = 5, .seed = 3},
      {.temperature = 1.1f, .top_k = 300, .top_p = 0.9f, .min_p = 0.001f, .seed = 4},
      {.temperature = 0.9f, .seed = 5},
      {.temperature = 0, .logprobs = 3},
      {.repetition_penalty = 1.3f, .temperature = 0},
      {.temperature = 0, .min_tokens = 4, .stop_ids = {1, 2, 3}},
      {.temperature = 0.7f, .seed = 6, .mirostat_tau = 3},
      {.temperature = 0, .mirostat_tau = 3},
      {.presence_penalty = 2, .frequency_penalty = 1.5f, .temperature = 0.2f, .seed = 7},
      {.repetition_penalty = 1.7f,
       .temperature = 0.3f,
       .seed = 8,
       .logprobs = 4,
       .logit_bias = {{250, 9}, {7, 3}, {250, -1}},
       .min_tokens = 3,
       .stop_ids = {250},
       .mirostat_tau = 2},
      {.repetition_penalty = 1.1f, .temperature = 0, .dry_multiplier = 2},
      {.temperature = 0.4f,
       .seed = 2,
       .logprobs = 1,
       .dry_multiplier = 3,
       .dry_allowed_length = 1,
       .dry_breakers = {{9}, {3, 14}}},
      {.temperature = 0.9f, .top_p = 0.8f, .seed = 9, .typical_p = 0.7f},
  };
  const auto count = static_cast<int32_t>(params.size());
  std::vector<std::vector<int32_t>> prompts, outputs(count);
  std::vector<std::optional<float>> mus(count);
  Executable& executable = gpu_->executable();
  const auto check = [&](const std::vector<int32_t>& slots) {
    const std::vector<float> logits = gpu_->Logits(static_cast<int64_t>(slots.size()));
    for (size_t row = 0; row < slots.size(); ++row) {
      const int32_t slot = slots[row];
      SCOPED_TRACE(slot);
      const SampledTokens& drawn = executable.result(0).sampled.at(row);
      ASSERT_EQ(drawn.error, "");
      SKEIN_ASSERT_OK_AND_ASSIGN(
          const serving::SampledToken want,
          Sample(absl::MakeConstSpan(logits).subspan(row * kColumns, kVocabulary), params[slot],
                 prompts[slot], outputs[slot], outputs[slot].size(), mus[slot]));
      ExpectSame(drawn.tokens.at(0), want);
      outputs[slot].push_back(want.id);
      mus[slot] = drawn.tokens.at(0).mu;
    }
  };
  Batch all;
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < count; ++slot) {
    Batch start = Start(slot, 3 + slot, 4 * slot, params[slot]);
    start.updates[0].pages = {4 * slot, 4 * slot + 1};
    prompts.push_back(start.token_ids);
    Join(all, start);
    slots.push_back(slot);
  }
  SKEIN_ASSERT_OK(gpu_->Run(all));
  check(slots);
  const std::vector<std::vector<int32_t>> steps = {slots, {0, 8}, {8, 1, 0}, {2},   {3, 0},
                                                   slots, {10},   {9, 10},   slots, slots};
  for (const std::vector<int32_t>& step : steps) {
    SKEIN_ASSERT_OK(gpu_->Run(Decode(step, kNewestToken)));
    check(step);
  }
  // Each slot's newest token was its own: the logits are those of tokens that are named.
  Layer other(*MakeCudaBackend({}));
  Batch named;
  for (const int32_t slot : {0, 3}) {
    std::vector<int32_t> history = prompts[slot];
    history.insert(history.end(), outputs[slot].begin(), outputs[slot].end() - 1);
    Batch start = Start(slot, static_cast<int32_t>(history.size()), 4 * slot, params[slot]);
    start.token_ids = history;
    Join(named, start);
  }
  SKEIN_ASSERT_OK(other.Run(named));
  EXPECT_EQ(other.executable().result(0).sampled.at(0).tokens.at(0).id, outputs[0].back());
}

// The parameters whose state lives with the device.
const serving::SamplingParams kStateful = {.repetition_penalty = 1.3f,
                                           .frequency_penalty = 1,
                                           .temperature = 0.4f,
                                           .seed = 3,
                                           .logprobs = 2,
                                           .logit_bias = {{17, 4}, {3, 6}},
                                           .mirostat_tau = 3};

TEST_F(CudaBackendTest, WhatADrawLeavesIsThereForTheOneBehindItWhileBothAreUnderWay) {
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10, kStateful)));
  Layer other(*MakeCudaBackend({}));
  SKEIN_ASSERT_OK(other.Run(Start(0, 5, 10, kStateful)));
  std::vector<serving::SampledToken> want;
  for (int step = 0; step < 8; ++step) {
    SKEIN_ASSERT_OK(other.Run(Decode({0}, kNewestToken)));
    want.push_back(other.executable().result(0).sampled.at(0).tokens.at(0));
  }
  Executable& executable = gpu_->executable();
  for (int step = 0; step < 8; step += 2) {
    Ticket tickets[2];
    for (int i = 0; i < 2; ++i) {
      executable.batch(i) = Decode({0}, kNewestToken);
      SKEIN_ASSERT_OK_AND_ASSIGN(tickets[i], executable.Enqueue(i));
    }
    for (int i = 0; i < 2; ++i) {
      SKEIN_ASSERT_OK(executable.Wait(tickets[i], kHostStream, absl::InfiniteFuture()).status());
      ExpectSame(executable.result(i).sampled.at(0).tokens.at(0), want[step + i]);
    }
  }
}

// A sequence whose draws a test follows.
struct Followed {
  serving::SamplingParams params;
  std::vector<int32_t> prompt, output;
  std::optional<float> mu;

  // Expects of a layer that ran one sequence that it drew what the sampler draws from its logits.
  void Check(Layer& layer) {
    const serving::SampledToken& drawn = layer.executable().result(0).sampled.at(0).tokens.at(0);
    const std::vector<float> logits = layer.Logits(1);
    SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken want,
                               Sample(absl::MakeConstSpan(logits).first(kVocabulary), params,
                                      prompt, output, output.size(), mu));
    ExpectSame(drawn, want);
    output.push_back(drawn.id);
    mu = drawn.mu;
  }
};

// A sequence that goes on in another slot: from the tokens so far, with a prompt that is another
// slot's; and one that gives positions back. What the slot had before is gone.
TEST_F(CudaBackendTest, AStartBringsWhatDrawsDependOn) {
  Batch start = Start(0, 5, 10, kStateful);
  Followed first = {.params = kStateful, .prompt = start.token_ids};
  SKEIN_ASSERT_OK(gpu_->Run(Start(1, 40, 20, kStateful)));
  SKEIN_ASSERT_OK(gpu_->Run(start));
  first.Check(*gpu_);
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  first.Check(*gpu_);
  Followed second = first;
  start.sequences[0] = {.slot = 1, .rows = 7, .outputs = 1, .draws = true};
  start.starts[0] = {
      .slot = 1, .prompt_of = 0, .output = first.output, .mu = first.mu, .sampling = kStateful};
  start.updates[0] = {.slot = 1, .pages = {20}};
  start.token_ids.insert(start.token_ids.end(), first.output.begin(), first.output.end());
  SKEIN_ASSERT_OK(gpu_->Run(start));
  second.Check(*gpu_);
  const Followed then = second;
  for (int step = 0; step < 3; ++step) {
    SKEIN_ASSERT_OK(gpu_->Run(Decode({1}, kNewestToken)));
    second.Check(*gpu_);
  }
  // The last three are drawn again.
  second = then;
  Batch again = Decode({1}, 0);
  again.token_ids = {second.output.back()};
  again.updates = {{.slot = 1, .length = 7, .mu = second.mu}};
  SKEIN_ASSERT_OK(gpu_->Run(again));
  second.Check(*gpu_);
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  first.Check(*gpu_);
}

TEST_F(CudaBackendTest, AHistoryLongerThanWhatIsBroughtAtOnceIsWhole) {
  // All slots start with a whole context and many biases, some 560 KB.
  Batch batch;
  std::vector<std::vector<int32_t>> prompts;
  serving::SamplingParams params = {.repetition_penalty = 1.3f, .temperature = 0};
  for (int32_t b = 0; b < 1500; ++b) {
    params.logit_bias.push_back({b % 500, 0.001f * static_cast<float>(b)});
  }
  for (int32_t slot = 0; slot < 40; ++slot) {
    Batch start = Start(slot, 5, slot, params);
    std::mt19937 random(slot);
    std::vector<int32_t>& prompt = start.starts[0].prompt;
    while (prompt.size() < 500) prompt.push_back(static_cast<int32_t>(random() % 200));
    prompts.push_back(prompt);
    Join(batch, start);
  }
  // What a prompt's positions are is nothing to a draw.
  SKEIN_ASSERT_OK(gpu_->Run(batch));
  const std::vector<float> logits = gpu_->Logits(40);
  for (int32_t slot = 0; slot < 40; ++slot) {
    SCOPED_TRACE(slot);
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const serving::SampledToken want,
        Sample(absl::MakeConstSpan(logits).subspan(slot * kColumns, kVocabulary), params,
               prompts[slot], {}, 0));
    EXPECT_EQ(gpu_->executable().result(0).sampled.at(slot).tokens.at(0).id, want.id);
  }
}

TEST_F(CudaBackendTest, MaskedDrawsStandBesideOthers) {
  Batch batch;
  const std::vector<serving::SamplingParams> params = {
      {.temperature = 0}, kStateful, {.temperature = 0.9f, .seed = 5}, kStateful};
  for (int32_t slot = 0; slot < 4; ++slot) Join(batch, Start(slot, 5, 4 * slot, params[slot]));
  for (int step = 0; step < 3; ++step) {
    if (step > 0) batch = Decode({0, 1, 2, 3}, kNewestToken);
    // The first two, and the last one in every second step.
    std::vector<std::vector<uint32_t>> masks(4);
    std::mt19937 random(step);
    for (const int32_t slot : {0, 1, 3}) {
      if (slot == 3 && step % 2 == 1) continue;
      batch.sequences[slot].masked = true;
      for (int64_t w = 0; w < MaskWords(kVocabulary); ++w)
        masks[slot].push_back(random() & random());
    }
    Executable& executable = gpu_->executable();
    executable.batch(0) = batch;
    SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket, executable.Enqueue(0));
    for (int32_t slot = 3; slot >= 0; --slot) {
      if (!masks[slot].empty()) executable.SetMask(0, slot, masks[slot]);
    }
    SKEIN_ASSERT_OK(executable.Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
    for (int32_t slot = 0; slot < 4; ++slot) {
      SCOPED_TRACE(slot);
      const int32_t id = executable.result(0).sampled.at(slot).tokens.at(0).id;
      if (!masks[slot].empty()) {
        EXPECT_NE(masks[slot][id / 32] >> (id % 32) & 1, 0u);
      }
    }
  }
}

// The host draws where there are guesses; the device goes on from there.
TEST_F(CudaBackendTest, TheDeviceHearsOfWhatTheHostDrew) {
  for (const bool mirostat : {false, true}) {
    serving::SamplingParams params = kStateful;
    params.mirostat_tau = mirostat ? 3 : 0;
    params.temperature = mirostat ? 0.4f : 0;
    const Batch start = Start(0, 5, 10, params);
    Followed followed = {.params = params, .prompt = start.token_ids};
    Layer other(*MakeCudaBackend({}));
    SKEIN_ASSERT_OK(other.Run(start));
    std::vector<int32_t> next;  // tokens
    for (int step = 0; step < 2; ++step) {
      SKEIN_ASSERT_OK(other.Run(Decode({0}, kNewestToken)));
      next.push_back(other.executable().result(0).sampled.at(0).tokens.at(0).id);
    }
    SKEIN_ASSERT_OK(gpu_->Run(start));
    followed.Check(*gpu_);
    Batch guessing = Decode({0}, 0);
    guessing.sequences[0] = {.slot = 0, .rows = 3, .outputs = 3, .draws = true, .guesses = 2};
    guessing.token_ids = {followed.output[0], next[0], (next[1] + 1) % 500};  // right, then wrong
    SKEIN_ASSERT_OK(gpu_->Run(guessing));
    const auto tokens = gpu_->executable().result(0).sampled.at(0).tokens;
    ASSERT_EQ(tokens.size(), mirostat ? 1u : 2u);
    for (const serving::SampledToken& token : tokens) {
      followed.output.push_back(token.id);
      followed.mu = token.mu;
    }
    for (int step = 0; step < 3; ++step) {
      SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
      followed.Check(*gpu_);
    }
  }
}

// Two shards' collectives, which give a stream nothing: they wait for it.
class Pair {
 public:
  class End final : public Collectives {
   public:
    End(Pair& pair, int shard) : pair_(pair), shard_(shard) {}
    absl::Status AllReduce(View data, Stream stream) override {
      EXPECT_EQ(data.dtype, DType::kF32);
      std::vector<float>& own = pair_.floats_[shard_];
      own.resize(data.elements());
      const auto bytes = static_cast<size_t>(data.bytes());
      EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(own.data(), data.data, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
      pair_.barrier_.arrive_and_wait();
      std::vector<float> sum = pair_.floats_[0];
      EXPECT_EQ(sum.size(), pair_.floats_[1].size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += pair_.floats_[1][i];
      pair_.barrier_.arrive_and_wait();
      EXPECT_EQ(cudaMemcpy(data.data, sum.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
      return absl::OkStatus();
    }
    absl::Status AllGather(ConstView in, View out, Stream) override {
      pair_.gathered_[shard_] = in;
      ++gathers;
      pair_.barrier_.arrive_and_wait();
      for (int shard = 0; shard < 2; ++shard) {
        const ConstView from = pair_.gathered_[shard];
        std::memcpy(static_cast<char*>(out.data) + shard * from.bytes(), from.data,
                    static_cast<size_t>(from.bytes()));
      }
      pair_.barrier_.arrive_and_wait();
      return absl::OkStatus();
    }

    int gathers = 0;  // by which hosts draw

   private:
    Pair& pair_;
    const int shard_;
  };
  End ends[2] = {{*this, 0}, {*this, 1}};

 private:
  std::barrier<> barrier_{2};
  std::vector<float> floats_[2];
  ConstView gathered_[2];
};

// Each shard has half of the logits; both draw what the sampler draws from the whole rows, whoever
// draws, and also with masks.
void ExpectShardsToDrawFromWholeRows(bool deterministic) {
  const std::vector<serving::SamplingParams> kinds = {
      {.temperature = 0},
      {.temperature = 0.9f, .top_p = 0.9f, .seed = 4},
      kStateful,
      {.temperature = 0, .logprobs = 3},
      {.repetition_penalty = 1.4f, .temperature = 0.3f, .seed = 6, .dry_multiplier = 1},
      // More than the device keeps.
      {.temperature = 0.3f, .logit_bias = {1600, {17, 0.001f}}}};
  constexpr int32_t kSlots = 40;  // more than shards exchange at once
  constexpr int kSteps = 3;
  Pair pair;
  std::unique_ptr<Layer> layers[2];
  std::vector<uint32_t> mask(MaskWords(kVocabulary));
  for (uint32_t& word : mask) word = 0x11111111u;
  // What each shard drew and had for logits, by step.
  std::vector<std::vector<SampledTokens>> drawn[2];
  std::vector<std::vector<float>> logits[2];
  std::vector<int> gathers[2];
  const auto params_of = [&](int32_t slot) {
    serving::SamplingParams params = kinds[slot % (slot < 12 ? 6 : 5)];
    params.seed += slot;
    return params;
  };
  const auto run = [&](int shard) {
    layers[shard] = std::make_unique<Layer>(*MakeCudaBackend({}), &pair.ends[shard], KvDType::kBF16,
                                            DType::kBF16, /*window=*/0, shard, 2, deterministic);
    Layer& layer = *layers[shard];
    std::vector<int32_t> slots;
    for (int step = 0; step < kSteps; ++step) {
      Batch batch = CudaBackendTest::Decode(slots, kNewestToken);
      for (int32_t slot = 0; step == 0 && slot < kSlots; ++slot) {
        CudaBackendTest::Join(batch,
                              CudaBackendTest::Start(slot, 3 + slot % 5, slot, params_of(slot)));
        // Those that devices make: in the first step some are the host's.
        if (slot >= 12 || slot % 6 != 5) slots.push_back(slot);
      }
      for (BatchSequence& sequence : batch.sequences) sequence.masked = sequence.slot == 7;
      layer.executable().batch(0) = batch;
      const absl::StatusOr<Ticket> ticket = [&] {
        layer.executable().SetMask(0, 7, mask);
        return layer.executable().Enqueue(0);
      }();
      SKEIN_EXPECT_OK(ticket.status());
      SKEIN_EXPECT_OK(
          layer.executable().Wait(*ticket, kHostStream, absl::InfiniteFuture()).status());
      drawn[shard].push_back(layer.executable().result(0).sampled);
      gathers[shard].push_back(pair.ends[shard].gathers);
      logits[shard].push_back(layer.Logits(batch.outputs()));
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();

  std::vector<std::vector<int32_t>> outputs(kSlots);
  std::vector<std::optional<float>> mus(kSlots);
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_EQ(drawn[0][step].size(), drawn[1][step].size());
    for (size_t row = 0; row < drawn[0][step].size(); ++row) {
      const SampledTokens& got = drawn[0][step][row];
      SCOPED_TRACE(testing::Message() << "step " << step << ", slot " << got.slot);
      ASSERT_EQ(got.error, "");
      ExpectSame(drawn[1][step][row].tokens.at(0), got.tokens.at(0));
      std::vector<float> whole;
      for (const auto& shard : logits) {
        const auto* const part = shard[step].data() + row * (kColumns / 2);
        whole.insert(whole.end(), part, part + kColumns / 2);
      }
      const serving::SamplingParams params = params_of(got.slot);
      const std::vector<int32_t> prompt =
          CudaBackendTest::Start(got.slot, 3 + got.slot % 5, 0).token_ids;
      const RowQuestion question = {
          .vocabulary = kVocabulary,
          .sampling = &params,
          .prompt = prompt,
          .output = outputs[got.slot],
          .position = outputs[got.slot].size(),
          .mu = mus[got.slot],
          .mask = got.slot == 7 ? absl::MakeConstSpan(mask) : absl::Span<const uint32_t>(),
          .logprobs = params.logprobs};
      SKEIN_ASSERT_OK_AND_ASSIGN(const serving::SampledToken want,
                                 Answer(question, absl::MakeConstSpan(whole).first(kVocabulary)));
      ExpectSame(got.tokens.at(0), want);
      outputs[got.slot].push_back(want.id);
      mus[got.slot] = got.tokens.at(0).mu;
    }
  }
  EXPECT_EQ(outputs[12].size(), size_t{kSteps});
  for (const std::vector<int>& by_step : gathers) {
    EXPECT_GT(by_step.front(), 0);
    EXPECT_EQ(by_step.back(), by_step.front()) << "the host drew what devices can";
  }
}

TEST_F(CudaBackendTest, ShardsDrawFromWholeRows) {
  ExpectShardsToDrawFromWholeRows(/*deterministic=*/false);
}
TEST_F(CudaBackendTest, DeterministicShardsDrawFromWholeRows) {
  ExpectShardsToDrawFromWholeRows(/*deterministic=*/true);
}

}  // namespace
}  // namespace skein::kernels
