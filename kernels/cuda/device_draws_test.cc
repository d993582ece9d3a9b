// Draws on the device, against a search through the row and the sampler.
#include "kernels/cuda/device_draws.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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
  // launch leaves behind shows in the next.
  std::vector<DeviceDraw> Run(const std::vector<int32_t>& rows) {
    std::vector<SetPair> pairs;
    for (int32_t row : rows) pairs.push_back({row, row + 1});
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

TEST(GreedyDrawsTest, AgreesWithASearch) {
  SKEIN_NEED_GPU();
  for (const int64_t tokens : {1, 3, 500, 8191, 8192, 8193, 128256}) {
    SCOPED_TRACE(tokens);
    Problem problem(tokens, 7);
    // Equal ones, in one block and in several: the first counts.
    for (const int64_t t : {tokens / 3, tokens / 2, tokens - 1}) problem.Row(5)[t] = 100;
    const std::vector<int32_t> rows = {5, 0, 6, 2};
    const std::vector<DeviceDraw> drawn = problem.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* const row = problem.Row(rows[i]);
      const float* const first = std::max_element(row, row + tokens);
      EXPECT_EQ(drawn[i].largest, *first);
      EXPECT_EQ(drawn[i].id, 1000 + (first - row));
      EXPECT_EQ(problem.newest[rows[i] + 1], drawn[i].id);
    }
    EXPECT_EQ(problem.newest[2], -5);  // of a row that nobody draws from
  }
}

TEST(GreedyDrawsTest, TellsOfNaN) {
  SKEIN_NEED_GPU();
  Problem problem(20000, 5);
  problem.Row(0)[12345] = kNan;
  problem.Row(1)[7] = -kNan;
  problem.Row(1)[9] = kInfinity;
  problem.Row(2)[19999] = kInfinity;
  std::fill_n(problem.Row(3), 20000, -kInfinity);
  std::fill_n(problem.Row(4), 20000, -0.0f);
  problem.Row(4)[3] = 0.0f;  // no greater than -0
  const std::vector<DeviceDraw> drawn = problem.Run({0, 1, 2, 3, 4});
  EXPECT_TRUE(std::isnan(drawn[0].largest));
  EXPECT_EQ(drawn[0].id, -1);
  EXPECT_EQ(problem.newest[1], 0);
  EXPECT_TRUE(std::isnan(drawn[1].largest));
  EXPECT_EQ(drawn[2].largest, kInfinity);
  EXPECT_EQ(drawn[2].id, 1000 + 19999);
  EXPECT_EQ(drawn[3].largest, -kInfinity);
  EXPECT_EQ(drawn[3].id, 1000);
  EXPECT_EQ(drawn[4].largest, 0);
  EXPECT_EQ(drawn[4].id, 1000);
}

TEST(DeviceDrawsTest, RefuseWhatDoesNotFit) {
  SKEIN_NEED_GPU();
  const float* const logits = nullptr;
  const auto refused = [](const DrawRows& rows, const char* why) {
    for (const absl::Status& status : {Enqueue(GreedyDraws{.of = rows}, Stream()),
                                       Enqueue(SampledDraws{.of = rows}, Stream())}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(why)));
    }
  };
  refused({.tokens = 8, .logits = logits, .logits_stride = 9}, "multiples of 4");
  refused({.tokens = 8, .logits = logits + 1, .logits_stride = 8}, "16-byte");
  EXPECT_THAT(Enqueue(SampledDraws{.of = {.tokens = kMaxSampledTokens + 1,
                                          .logits = logits,
                                          .logits_stride = kMaxSampledTokens + 4}},
                      Stream()),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("tokens")));
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
  static constexpr int64_t kStride = 400;

  explicit Slots(const std::vector<Drawing>& drawings) {
    std::vector<int32_t> all_histories(kSlots * kStride, -7);
    std::vector<SetPair> all_biases(kSlots * kSlotBiases, SetPair{-7, -7});
    std::vector<float> all_mus(kSlots);
    for (size_t slot = 0; slot < drawings.size(); ++slot) {
      const Drawing& drawing = drawings[slot];
      auto* const history = all_histories.data() + slot * kStride;
      std::copy(drawing.prompt.begin(), drawing.prompt.end(), history);
      std::copy(drawing.output.begin(), drawing.output.end(), history + drawing.prompt.size());
      SetPair* bias = all_biases.data() + slot * kSlotBiases;
      for (const serving::TokenBias& of : drawing.params.logit_bias) {
        *bias++ = {of.id, std::bit_cast<int32_t>(of.bias)};
      }
      for (const int32_t stop : drawing.params.stop_ids) *bias++ = {stop, 0};
      all_mus[slot] = drawing.mu.value_or(2 * drawing.params.mirostat_tau);
    }
    histories.Upload(all_histories.data(), histories.bytes());
    biases.Upload(all_biases.data(), biases.bytes());
    mus.Upload(all_mus.data(), mus.bytes());
    newest.Upload(all_histories.data(), newest.bytes());
  }

  SampledDraw DrawOf(const Drawing& of, int32_t slot) const {
    const serving::SamplingParams& params = of.params;
    const bool forbids = of.output.size() < static_cast<size_t>(params.min_tokens);
    return {.row = slot,
            .slot = slot,
            .uniform = UniformDraw(params.seed, of.output.size(), params.answer),
            .temperature = params.temperature,
            .top_k = params.top_k,
            .top_p = params.top_p,
            .min_p = params.min_p,
            .typical_p = params.typical_p,
            .repetition_penalty = params.repetition_penalty,
            .presence_penalty = params.presence_penalty,
            .frequency_penalty = params.frequency_penalty,
            .mirostat_tau = params.mirostat_tau,
            .mirostat_eta = params.mirostat_eta,
            .logprobs = params.logprobs,
            .prompt = static_cast<int32_t>(of.prompt.size()),
            .output = static_cast<int32_t>(of.output.size()),
            .biases = static_cast<int32_t>(params.logit_bias.size()),
            .stops = forbids ? static_cast<int32_t>(params.stop_ids.size()) : 0,
            .penalises = params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                         params.frequency_penalty != 0};
  }

  std::vector<DeviceDraw> Draw(const Problem& problem, const std::vector<Drawing>& drawings,
                               const std::vector<uint32_t>& masks) {
    std::vector<SampledDraw> draws;
    for (const Drawing& of : drawings)
      draws.push_back(DrawOf(of, static_cast<int32_t>(draws.size())));
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
                                           .history_stride = kStride,
                                           .biases = static_cast<SetPair*>(biases.data()),
                                           .mus = static_cast<float*>(mus.data())},
                                 .masks = masks.empty() ? nullptr : device_masks.get(),
                                 .mask_words = MaskWords(problem.tokens)},
                    stream));
    Require(stream.Finish());
    std::vector<DeviceDraw> drawn(draws.size());
    out.Download(drawn.data(), out.bytes());
    return drawn;
  }
  template <typename T>
  static T At(const DeviceBytes& memory, int64_t index) {
    std::vector<T> values(memory.bytes() / sizeof(T));
    memory.Download(values.data(), memory.bytes());
    return values[index];
  }

  static constexpr int64_t kSlots = 64;
  DeviceBytes histories{kSlots * kStride * int64_t{sizeof(int32_t)}};
  DeviceBytes biases{kSlots * kSlotBiases * int64_t{sizeof(SetPair)}};
  DeviceBytes mus{kSlots * int64_t{sizeof(float)}};
  DeviceBytes newest{kSlots * int64_t{sizeof(int32_t)}};
};

std::vector<DeviceDraw> DrawAll(Problem& problem, const std::vector<Drawing>& drawings) {
  return Slots(drawings).Draw(problem, drawings, {});
}

// Rows of all shapes: flat, steep, with many ties, with tokens that cannot be.
void Shape(Problem& problem, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = r % 4 == 0 ? 0.01f : (r % 4 == 1 ? 0.1f : 1.0f);
    for (int64_t t = 0; t < problem.tokens; ++t) {
      float& logit = problem.Row(r)[t];
      logit *= scale;
      if (r % 4 == 3) logit = std::round(logit / 2);
      if (r % 5 == 4 && t % 3 == 0) logit = -kInfinity;
    }
    float& middle = problem.Row(r)[problem.tokens / 2];
    middle = std::max(middle, 0.0f);
  }
}

// Each parameter alone, and with others.
std::vector<serving::SamplingParams> Variants() {
  std::vector<serving::SamplingParams> variants = {
      {.temperature = 0},
      {.temperature = 1.3f},
      {.top_k = 1},
      {.temperature = 0.8f, .top_k = 40},
      {.top_k = 5000, .top_p = 0.9f},
      {.top_p = 0.3f},
      {.temperature = 2, .min_p = 0.05f},
      {.top_k = 700, .top_p = 0.8f, .min_p = 0.01f},
      {.typical_p = 0.5f},
      {.temperature = 0.7f, .top_k = 60, .top_p = 0.7f, .min_p = 0.1f, .typical_p = 0.9f},
      {.mirostat_tau = 3},
      {.temperature = 0.6f, .top_k = 3, .mirostat_tau = 0.5f, .mirostat_eta = 0.9f},
      {.repetition_penalty = 1.5f},
      {.presence_penalty = 3},
      {.frequency_penalty = -0.7f},
      {.repetition_penalty = 0.8f,
       .presence_penalty = 0.5f,
       .frequency_penalty = 1.1f,
       .temperature = 0},
      {.logit_bias = {{0, 9.5f}}},
      {.temperature = 0, .logit_bias = {{0, 30}, {0, 0.1f}, {0, 0.1f}}},
      {.temperature = 0, .min_tokens = 300, .stop_ids = {0}},
      {.logprobs = 0},
      {.temperature = 0, .logprobs = 20},
  };
  // With all that comes before the temperature, and all that is told.
  const size_t alone = variants.size();
  for (size_t v = 0; v < alone; ++v) {
    serving::SamplingParams both = variants[v];
    both.repetition_penalty = 1.2f;
    both.presence_penalty = 0.3f;
    both.frequency_penalty = 0.2f;
    both.logprobs = 7;
    both.logit_bias = {{0, 2.5f}, {0, -1}};
    both.min_tokens = v % 2 == 0 ? 300 : 3;
    both.stop_ids = {0};
    variants.push_back(both);
  }
  return variants;
}

std::vector<Drawing> Drawings(int64_t tokens, uint32_t seed) {
  std::vector<Drawing> drawings;
  std::mt19937 random(seed);
  const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(tokens)); };
  for (serving::SamplingParams& params : Variants()) {
    Drawing& drawing = drawings.emplace_back(Drawing{.params = std::move(params)});
    drawing.params.seed = random();
    // Tokens of lists: the same ones often, and of all parts of the row; the lists ascend.
    for (size_t b = 1; b < drawing.params.logit_bias.size(); ++b) {
      drawing.params.logit_bias[b].id = static_cast<int32_t>(tokens / 2);
    }
    if (!drawing.params.stop_ids.empty()) drawing.params.stop_ids = {any(), any()};
    for (int i = 0; i < 150; ++i) drawing.prompt.push_back(i % 3 == 0 ? any() : any() % 20);
    for (int i = 0; i < 80; ++i) drawing.output.push_back(i % 3 == 0 ? any() : any() % 20);
    if (random() % 2 == 0) drawing.mu = 2.5f;
  }
  return drawings;
}

// Of sums that differ in the last bits of a double.
void ExpectNear(float got, float want) {
  if (got != want) {
    EXPECT_NEAR(got, want, 1e-6f * (1 + std::abs(want)));
  }
}

void ExpectSame(const Drawing& of, const RowQuestion& question, const DeviceDraw& drawn,
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

TEST(SampledDrawsTest, AreTheSamplers) {
  SKEIN_NEED_HOPPER();
  for (const int64_t tokens : {1, 2, 9, 500, 8192, 50257, 128256}) {
    SCOPED_TRACE(tokens);
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const std::vector<Drawing> drawings = Drawings(tokens, seed);
      const auto rows = static_cast<int64_t>(drawings.size());
      // Another shape for each variant.
      Problem problem(tokens, rows + seed);
      Shape(problem, rows + seed);
      problem.logits.erase(problem.logits.begin(), problem.logits.begin() + seed * problem.stride);
      // Some tokens may be drawn in every second run, never less than one.
      std::vector<uint32_t> masks;
      std::mt19937 random(seed);
      if (seed % 2 == 1) {
        masks.resize(rows * MaskWords(tokens));
        for (uint32_t& word : masks) word = random() & random();
        for (int64_t r = 0; r < rows; ++r) {
          masks[r * MaskWords(tokens) + tokens / 2 / 32] |= uint32_t{1} << (tokens / 2 % 32);
        }
      }
      Slots slots(drawings);
      const std::vector<DeviceDraw> drawn = slots.Draw(problem, drawings, masks);
      for (int64_t r = 0; r < rows; ++r) {
        SCOPED_TRACE(r);
        const Drawing& of = drawings[r];
        const auto mask = absl::MakeConstSpan(masks);
        ExpectSame(of,
                   of.Question(tokens, masks.empty() ? mask
                                                     : mask.subspan(r * MaskWords(tokens),
                                                                    MaskWords(tokens))),
                   drawn[r], {problem.Row(r), static_cast<size_t>(tokens)});
        const int32_t newest = std::max(drawn[r].id, 0);
        EXPECT_EQ(Slots::At<int32_t>(slots.newest, r), newest);
        const int64_t end = r * Slots::kStride + 230;
        EXPECT_EQ(Slots::At<int32_t>(slots.histories, end),
                  slots.DrawOf(of, 0).penalises ? newest : -7);
        EXPECT_EQ(Slots::At<int32_t>(slots.histories, end + 1), -7);
        if (of.params.mirostat_tau > 0) {
          EXPECT_EQ(Slots::At<float>(slots.mus, r), drawn[r].mu);
        }
      }
    }
  }
}

// What a draw leaves with its slot is what the next one needs.
TEST(SampledDrawsTest, FollowEachOther) {
  SKEIN_NEED_HOPPER();
  Problem problem(500, 1);
  for (int64_t t = 0; t < 500; ++t) problem.Row(0)[t] /= 100;
  std::vector<Drawing> drawings = {{.params = {.repetition_penalty = 1.2f,
                                               .frequency_penalty = 2,
                                               .temperature = 0.3f,
                                               .seed = 5,
                                               .mirostat_tau = 4}}};
  Slots slots(drawings);
  for (int step = 0; step < 50; ++step) {
    SCOPED_TRACE(step);
    const DeviceDraw drawn = slots.Draw(problem, drawings, {}).at(0);
    ExpectSame(drawings[0], drawings[0].Question(500, {}), drawn, {problem.Row(0), 500});
    drawings[0].output.push_back(drawn.id);
    drawings[0].mu = drawn.mu;
  }
}

// What shards of a vocabulary give each other, which the sum of all is.
TEST(ShardsOfDrawsTest, DrawAsFromTheWholeRow) {
  SKEIN_NEED_HOPPER();
  constexpr int64_t kTokens = 20001;
  constexpr int64_t kPart = 8000;  // the last one is short
  constexpr int32_t kShards = 3;
  constexpr int64_t kStride = 20004;
  Problem whole(kTokens, 6);
  for (const int64_t t : {7999, 8000, 20000}) whole.Row(1)[t] = 50;  // the first counts
  whole.Row(2)[20000] = 60;
  whole.Row(3)[9000] = kNan;
  std::fill_n(whole.Row(4), kTokens, -kInfinity);
  const std::vector<int32_t> rows = {5, 1, 3, 2, 4};
  const auto count = static_cast<int32_t>(rows.size());
  const std::vector<DeviceDraw> want = whole.Run(rows);

  std::vector<SetPair> pairs;
  std::vector<SampledDraw> draws;
  for (const int32_t row : rows) {
    pairs.push_back({row, row + 1});
    draws.push_back({.row = row});
  }
  const DeviceArray<SetPair> device_pairs(pairs);
  const DeviceArray<SampledDraw> device_draws(draws);
  const DeviceBytes candidates(kShards * count * int64_t{sizeof(DrawCandidate)});
  OwnStream stream;
  std::vector<float> sums(count * kStride);
  for (int32_t shard = 0; shard < kShards; ++shard) {
    Problem part(std::min(kPart, kTokens - shard * kPart), 6);
    for (int64_t r = 0; r < 6; ++r)
      std::copy_n(whole.Row(r) + shard * kPart, part.tokens, part.Row(r));
    const DeviceBytes logits = Encoded(DType::kF32, part.logits);
    const DeviceArray<uint64_t> best(std::vector<uint64_t>(count, 0));
    const DeviceArray<uint32_t> arrived(std::vector<uint32_t>(count, 0));
    const DrawRows of = {.tokens = part.tokens,
                         .logits = static_cast<const float*>(logits.data()),
                         .logits_stride = part.stride,
                         .first_id = static_cast<int32_t>(shard * kPart)};
    Require(Enqueue(
        GreedyDraws{.draws = count,
                    .rows = device_pairs.get(),
                    .of = of,
                    .best = best.get(),
                    .arrived = arrived.get(),
                    .candidates = static_cast<DrawCandidate*>(candidates.data()) + shard * count},
        stream));
    const DeviceBytes spread(count * kStride * int64_t{sizeof(float)});
    Require(Enqueue(SpreadRows{.draws = count,
                               .rows = device_draws.get(),
                               .of = of,
                               .out = static_cast<float*>(spread.data()),
                               .out_stride = kStride},
                    stream));
    Require(stream.Finish());
    const std::vector<float> parts = Decoded(DType::kF32, spread);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += parts[i];
  }
  for (int32_t i = 0; i < count; ++i) {
    for (int64_t t = 0; t < kStride; ++t) {
      const float logit = t < kTokens ? whole.Row(rows[i])[t] : 0;
      ASSERT_TRUE(sums[i * kStride + t] == logit || std::isnan(logit)) << t;
    }
  }
  const DeviceArray<int32_t> newest(std::vector<int32_t>(10, -5));
  const DeviceArray<DeviceDraw> drawn{std::vector<DeviceDraw>(count)};
  Require(Enqueue(JoinGreedyDraws{.draws = count,
                                  .rows = device_pairs.get(),
                                  .shards = kShards,
                                  .candidates = static_cast<DrawCandidate*>(candidates.data()),
                                  .newest_tokens = newest.get(),
                                  .drawn = drawn.get()},
                  stream));
  Require(stream.Finish());
  std::vector<DeviceDraw> got(count);
  drawn.Download(got.data(), drawn.bytes());
  for (int32_t i = 0; i < count; ++i) {
    SCOPED_TRACE(rows[i]);
    // The other one numbers from 1,000.
    EXPECT_EQ(got[i].id, want[i].id < 0 ? -1 : want[i].id - 1000);
    EXPECT_TRUE(got[i].largest == want[i].largest || std::isnan(want[i].largest));
    EXPECT_EQ(std::isnan(got[i].largest), std::isnan(want[i].largest));
    EXPECT_EQ(Slots::At<int32_t>(newest, rows[i] + 1), std::max(got[i].id, 0));
  }
  EXPECT_EQ(Slots::At<int32_t>(newest, 1), -5);  // of a row that nobody draws from
}

// Over all of [0, 1) each token comes as often as it weighs.
TEST(SampledDrawsTest, EveryUniformHasItsToken) {
  SKEIN_NEED_HOPPER();
  Problem problem(4, 1);
  const float logits[] = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  std::copy_n(logits, 4, problem.Row(0));
  std::vector<SampledDraw> draws;
  for (const float uniform : {0.0f, 0.39f, 0.41f, 0.69f, 0.71f, 0.89f, 0.91f, 0.99999994f}) {
    draws.push_back({.uniform = uniform});
  }
  const DeviceArray<SampledDraw> device_draws(draws);
  const DeviceBytes device_logits = Encoded(DType::kF32, problem.logits);
  DeviceBytes out(static_cast<int64_t>(draws.size() * sizeof(DeviceDraw)));
  OwnStream stream;
  Require(Enqueue(SampledDraws{.draws = static_cast<int32_t>(draws.size()),
                               .rows = device_draws.get(),
                               .of = {.tokens = 4,
                                      .logits = static_cast<const float*>(device_logits.data()),
                                      .logits_stride = problem.stride,
                                      .drawn = static_cast<DeviceDraw*>(out.data())}},
                  stream));
  Require(stream.Finish());
  std::vector<DeviceDraw> drawn(draws.size());
  out.Download(drawn.data(), out.bytes());
  std::vector<int32_t> ids;
  for (const DeviceDraw& draw : drawn) ids.push_back(draw.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 1, 3, 3, 2, 2, 0, 0}));
}

TEST(SampledDrawsTest, TellOfWhatCannotBeDrawnFrom) {
  SKEIN_NEED_HOPPER();
  for (const float temperature : {0.0f, 1.0f}) {
    Problem problem(20000, 5);
    problem.Row(0)[19999] = kNan;
    problem.Row(1)[3] = kInfinity;
    std::fill_n(problem.Row(2), 20000, -kInfinity);
    std::fill_n(problem.Row(3), 20000, -kInfinity);
    problem.Row(3)[7] = -3;
    problem.Row(4)[19998] = kNan;  // is left out, and told of
    std::vector<Drawing> drawings(5, {.params = {.temperature = temperature}});
    drawings[4].params.min_tokens = 1;
    drawings[4].params.stop_ids = {19998};
    drawings[4].params.logprobs = 1;
    Slots slots(drawings);
    const std::vector<DeviceDraw> drawn = slots.Draw(problem, drawings, {});
    for (int64_t r = 0; r < 5; ++r) {
      SCOPED_TRACE(r);
      ExpectSame(drawings[r], drawings[r].Question(20000, {}), drawn[r], {problem.Row(r), 20000});
    }
    EXPECT_TRUE(std::isnan(drawn[0].largest));
    EXPECT_EQ(drawn[1].largest, kInfinity);
    EXPECT_EQ(drawn[2].largest, -kInfinity);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(drawn[i].id, -1);
    EXPECT_EQ(Slots::At<int32_t>(slots.newest, 1), 0);
    EXPECT_EQ(drawn[3].id, 7);
    EXPECT_GE(drawn[4].id, 0);
    EXPECT_TRUE(std::isnan(drawn[4].told.largest));
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
