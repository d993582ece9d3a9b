// Rows and slots for tests of draws on the device, and what they are held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/slot_parameters.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels::cuda {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of logits [rows, stride], of which draws take some.
struct Problem {
  Problem(int64_t tokens, int64_t rows)
      : tokens(tokens), stride((tokens + 3) / 4 * 4 + 8), logits(rows * stride, kInfinity) {
    const std::vector<float> values = RandomValues(7, rows * tokens, DType::kF32, 20);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * tokens, tokens, Row(r));
    }
  }
  float* Row(int64_t r) { return logits.data() + r * stride; }

  // What draws from these rows, each with the slot of its row plus 1, give; twice, so that what one
  // launch leaves behind shows in the next. `put_down`: the tokens are, by slot.
  std::vector<DeviceDraw> Run(const std::vector<int32_t>& rows, bool put_down = true) {
    std::vector<SetPair> pairs;
    for (int32_t row : rows) pairs.push_back({row, put_down ? row + 1 : -1});
    const DeviceArray<SetPair> device_rows(pairs);
    const DeviceBytes device_logits = Encoded(DType::kF32, logits);
    const DeviceArray<uint64_t> best(std::vector<uint64_t>(rows.size(), 0));
    const DeviceArray<uint32_t> arrived(std::vector<uint32_t>(rows.size(), 0));
    const auto slots = static_cast<int64_t>(logits.size()) / stride + 1;
    const DeviceArray<int32_t> newest_tokens(std::vector<int32_t>(slots, -5));
    std::vector<DeviceDraw> drawn(rows.size());
    OwnStream stream;
    for (int launch = 0; launch < 2; ++launch) {
      DeviceBytes out(static_cast<int64_t>(rows.size() * sizeof(DeviceDraw)));
      Require(Enqueue(GreedyDraws{.draws = static_cast<int32_t>(rows.size()),
                                  .rows = device_rows.get(),
                                  .of = {.tokens = tokens,
                                         .logits = static_cast<const float*>(device_logits.data()),
                                         .logits_stride = stride,
                                         .first_id = 1000,
                                         .newest_tokens = newest_tokens.get(),
                                         .drawn = static_cast<DeviceDraw*>(out.data())},
                                  .best = best.get(),
                                  .arrived = arrived.get()},
                      stream));
      Require(stream.Finish());
      out.Download(drawn.data(), out.bytes());
    }
    newest.resize(slots);
    newest_tokens.Download(newest.data(), newest_tokens.bytes());
    return drawn;
  }

  const int64_t tokens, stride;
  std::vector<float> logits;
  std::vector<int32_t> newest;  // by slot, after Run
};

template <typename T>
T At(const DeviceBytes& memory, int64_t index) {
  std::vector<T> values(memory.bytes() / sizeof(T));
  memory.Download(values.data(), memory.bytes());
  return values[index];
}

// What a draw from a row depends on. Draw r is from row r, and has slot r.
struct Drawing {
  serving::SamplingParams params;
  std::vector<int32_t> prompt, output;
  std::optional<float> mu;

  RowQuestion Question(int64_t tokens, absl::Span<const uint32_t> mask) const {
    return {.vocabulary = tokens,
            .sampling = &params,
            .prompt = prompt,
            .output = output,
            .position = output.size(),
            .mu = mu,
            .mask = mask,
            .logprobs = params.logprobs};
  }
};

// Slots that stay as launches leave them.
struct Slots {
  // `stride` tokens of history each.
  Slots(const std::vector<Drawing>& drawings, int64_t tokens, int64_t stride = 400)
      : tokens(tokens),
        stride(stride),
        breaker_words(MaskWords(tokens)),
        slots(static_cast<int64_t>(drawings.size())) {
    std::vector<int32_t> all_histories(slots * stride, -7);
    std::vector<SetPair> all_lists(slots * kSlotEntries, SetPair{-7, -7});
    std::vector<uint32_t> all_breakers(slots * breaker_words, ~0u);
    std::vector<float> all_mus(slots);
    for (size_t slot = 0; slot < drawings.size(); ++slot) {
      const Drawing& drawing = drawings[slot];
      auto* const history = all_histories.data() + slot * stride;
      std::copy(drawing.prompt.begin(), drawing.prompt.end(), history);
      std::copy(drawing.output.begin(), drawing.output.end(), history + drawing.prompt.size());
      const SlotParameters parameters = SlotParametersOf(drawing.params, tokens);
      absl::c_copy(parameters.list, all_lists.begin() + slot * kSlotEntries);
      absl::c_copy(parameters.breakers, all_breakers.begin() + slot * breaker_words);
      all_mus[slot] = drawing.mu.value_or(2 * drawing.params.mirostat_tau);
    }
    histories.Upload(all_histories.data(), histories.bytes());
    lists.Upload(all_lists.data(), lists.bytes());
    breakers.Upload(all_breakers.data(), breakers.bytes());
    mus.Upload(all_mus.data(), mus.bytes());
    newest.Upload(std::vector<int32_t>(slots, -7).data(), newest.bytes());
  }

  SampledDraw DrawOf(const Drawing& of, int32_t slot) const {
    SampledDraw draw = DrawBehind(SlotParametersOf(of.params, tokens).draw, of.params,
                                  static_cast<int64_t>(of.prompt.size()), of.output.size());
    draw.row = draw.slot = slot;
    return draw;
  }

  std::vector<DeviceDraw> Draw(const Problem& problem, const std::vector<Drawing>& drawings,
                               const std::vector<uint32_t>& masks) {
    std::vector<SampledDraw> draws;
    for (const Drawing& of : drawings)
      draws.push_back(DrawOf(of, static_cast<int32_t>(draws.size())));
    return Draw(problem, draws, masks);
  }
  std::vector<DeviceDraw> Draw(const Problem& problem, const std::vector<SampledDraw>& draws,
                               const std::vector<uint32_t>& masks) {
    const DeviceArray<SampledDraw> device_draws(draws);
    const DeviceBytes device_logits = Encoded(DType::kF32, problem.logits);
    const DeviceArray<uint32_t> device_masks(masks);
    DeviceBytes out(static_cast<int64_t>(draws.size() * sizeof(DeviceDraw)));
    OwnStream stream;
    Require(Enqueue(SampledDraws{.draws = static_cast<int32_t>(draws.size()),
                                 .rows = device_draws.get(),
                                 .of = {.tokens = problem.tokens,
                                        .logits = static_cast<const float*>(device_logits.data()),
                                        .logits_stride = problem.stride,
                                        .newest_tokens = static_cast<int32_t*>(newest.data()),
                                        .drawn = static_cast<DeviceDraw*>(out.data())},
                                 .slots = {.histories = static_cast<int32_t*>(histories.data()),
                                           .history_stride = stride,
                                           .lists = static_cast<SetPair*>(lists.data()),
                                           .mus = static_cast<float*>(mus.data()),
                                           .breakers = static_cast<uint32_t*>(breakers.data()),
                                           .breaker_words = breaker_words},
                                 .masks = masks.empty() ? nullptr : device_masks.get(),
                                 .mask_words = MaskWords(problem.tokens)},
                    stream));
    Require(stream.Finish());
    std::vector<DeviceDraw> drawn(draws.size());
    out.Download(drawn.data(), out.bytes());
    return drawn;
  }

  const int64_t tokens, stride, breaker_words, slots;
  DeviceBytes histories{slots * stride * int64_t{sizeof(int32_t)}};
  DeviceBytes lists{slots * kSlotEntries * int64_t{sizeof(SetPair)}};
  DeviceBytes breakers{slots * breaker_words * int64_t{sizeof(uint32_t)}};
  DeviceBytes mus{slots * int64_t{sizeof(float)}};
  DeviceBytes newest{slots * int64_t{sizeof(int32_t)}};
};

// Of sums that differ in the last bits of a double.
inline void ExpectNear(float got, float want) {
  if (got != want) {
    EXPECT_NEAR(got, want, 1e-6f * (1 + std::abs(want)));
  }
}

inline void ExpectSame(const Drawing& of, const RowQuestion& question, const DeviceDraw& drawn,
                       absl::Span<const float> row) {
  const absl::StatusOr<serving::SampledToken> want = Answer(question, row);
  const absl::StatusOr<serving::SampledToken> got = Take(question, drawn);
  ASSERT_EQ(got.status(), want.status());
  if (!want.ok()) return;
  EXPECT_EQ(got->id, want->id);
  if (of.params.mirostat_tau > 0) {
    EXPECT_FLOAT_EQ(got->mu, want->mu);
  }
  if (of.params.logprobs < 0) return;
  ExpectNear(got->logprob, want->logprob);
  ASSERT_EQ(got->top_logprobs.size(), want->top_logprobs.size());
  for (size_t i = 0; i < want->top_logprobs.size(); ++i) {
    EXPECT_EQ(got->top_logprobs[i].id, want->top_logprobs[i].id);
    ExpectNear(got->top_logprobs[i].logprob, want->top_logprobs[i].logprob);
  }
}

}  // namespace skein::kernels::cuda
