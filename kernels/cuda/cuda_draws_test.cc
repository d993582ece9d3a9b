// The draws of the CUDA back end against the sampler, from the logits that it has computed.
#include <cstdint>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_draws_testing.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {
namespace {

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
       .logit_bias = {{3, 8}, {9, 8}, {14, 8}, {20, 8}},  // these repeat
       .dry_multiplier = 3,
       .dry_allowed_length = 1,
       .dry_breakers = {{9}, {3, 14}}},
      {.temperature = 0.9f, .top_p = 0.8f, .seed = 9, .typical_p = 0.7f},
      kByHost,
  };
  const auto count = static_cast<int32_t>(params.size());
  Followed followed;
  Batch all;
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < count; ++slot) {
    Batch start = Start(slot, 3 + slot, 4 * slot, params[slot]);
    start.updates[0].pages = {4 * slot, 4 * slot + 1};
    Join(all, start);
    slots.push_back(slot);
  }
  SKEIN_ASSERT_OK(gpu_->Run(all));
  followed.Check(*gpu_);
  const std::vector<std::vector<int32_t>> steps = {slots, {0, 8}, {8, 1, 0}, {2},   {3, 0},
                                                   slots, {10},   {9, 10},   slots, slots};
  for (const std::vector<int32_t>& step : steps) {
    SKEIN_ASSERT_OK(gpu_->Run(Decode(step, kNewestToken)));
    followed.Check(*gpu_);
  }
  // Each slot's newest token was its own: the logits are those of tokens that are named.
  Layer other(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
  Batch named;
  for (const int32_t slot : {0, 3}) {
    std::vector<int32_t> history = followed[slot].prompt;
    const std::vector<int32_t>& output = followed[slot].output;
    history.insert(history.end(), output.begin(), output.end() - 1);
    Batch start = Start(slot, static_cast<int32_t>(history.size()), 4 * slot, params[slot]);
    start.token_ids = history;
    Join(named, start);
  }
  SKEIN_ASSERT_OK(other.Run(named));
  EXPECT_EQ(other.executable().result(0).sampled.at(0).tokens.at(0).id, followed[0].output.back());
}

TEST_F(CudaBackendTest, WhatADrawLeavesIsThereForTheOneBehindItWhileBothAreUnderWay) {
  SKEIN_ASSERT_OK(gpu_->Run(Start(0, 5, 10, kStateful)));
  Layer other(*MakeCudaBackend({.decode = DecodeForm::kGraph}));
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

// A sequence that goes on in another slot: from the tokens so far, with a prompt that is another
// slot's; and one that gives positions back. What the slot had before is gone.
TEST_F(CudaBackendTest, AStartBringsWhatDrawsDependOn) {
  Batch start = Start(0, 5, 10, kStateful);
  Followed followed;
  SKEIN_ASSERT_OK(gpu_->Run(Start(1, 40, 20, kStateful)));
  SKEIN_ASSERT_OK(gpu_->Run(start));
  followed.Check(*gpu_);
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  followed.Check(*gpu_);
  const Followed::Slot& first = followed[0];
  start.sequences[0] = {.slot = 1, .rows = 7, .outputs = 1, .draws = true};
  start.starts[0] = {
      .slot = 1, .prompt_of = 0, .output = first.output, .mu = first.mu, .sampling = kStateful};
  start.updates[0] = {.slot = 1, .pages = {20}};
  start.token_ids.insert(start.token_ids.end(), first.output.begin(), first.output.end());
  SKEIN_ASSERT_OK(gpu_->Run(start));
  followed.Check(*gpu_);
  const Followed::Slot then = followed[1];
  for (int step = 0; step < 3; ++step) {
    SKEIN_ASSERT_OK(gpu_->Run(Decode({1}, kNewestToken)));
    followed.Check(*gpu_);
  }
  // The last three are drawn again.
  followed[1] = then;
  Batch again = Decode({1}, 0);
  again.token_ids = {then.output.back()};
  again.updates = {{.slot = 1, .length = 7, .mu = then.mu}};
  SKEIN_ASSERT_OK(gpu_->Run(again));
  followed.Check(*gpu_);
  SKEIN_ASSERT_OK(gpu_->Run(Decode({0}, kNewestToken)));
  followed.Check(*gpu_);
}

TEST_F(CudaBackendTest, AHistoryLongerThanWhatIsBroughtAtOnceIsWhole) {
  // All slots start with a whole context and many biases, some 560 KB.
  Batch batch;
  serving::SamplingParams params = {.repetition_penalty = 1.3f, .temperature = 0};
  for (int32_t b = 0; b < 1500; ++b) {
    params.logit_bias.push_back({b % 500, 0.001f * static_cast<float>(b)});
  }
  for (int32_t slot = 0; slot < 40; ++slot) {
    Batch start = Start(slot, 5, slot, params);
    std::mt19937 random(slot);
    std::vector<int32_t>& prompt = start.starts[0].prompt;
    while (prompt.size() < 500) prompt.push_back(static_cast<int32_t>(random() % 200));
    Join(batch, start);
  }
  // What a prompt's positions are is nothing to a draw.
  SKEIN_ASSERT_OK(gpu_->Run(batch));
  Followed().Check(*gpu_);
}

TEST_F(CudaBackendTest, MaskedDrawsStandBesideOthers) {
  const std::vector<serving::SamplingParams> params = {
      {.temperature = 0}, kStateful, {.temperature = 0.9f, .seed = 5}, kStateful, kByHost};
  Batch batch;
  for (int32_t slot = 0; slot < 5; ++slot) Join(batch, Start(slot, 5, 4 * slot, params[slot]));
  Followed followed;
  for (int step = 0; step < 4; ++step) {
    if (step > 0) batch = Decode({0, 1, 2, 3, 4}, kNewestToken);
    // The first two, the fourth in every second step, and then the fifth, too.
    Masks masks;
    std::mt19937 random(step);
    for (const int32_t slot : {0, 1, 3, 4}) {
      if (slot >= 3 && step % 2 == 1) continue;
      batch.sequences[slot].masked = true;
      for (int64_t w = 0; w < MaskWords(kVocabulary); ++w) {
        masks[slot].push_back(random() & random() & random());
      }
    }
    Executable& executable = gpu_->executable();
    executable.batch(0) = batch;
    SKEIN_ASSERT_OK_AND_ASSIGN(const Ticket ticket, executable.Enqueue(0));
    for (const auto& [slot, mask] : masks) executable.SetMask(0, slot, mask);
    SKEIN_ASSERT_OK(executable.Wait(ticket, kHostStream, absl::InfiniteFuture()).status());
    followed.Check(*gpu_, masks);
  }
}

}  // namespace
}  // namespace skein::kernels
