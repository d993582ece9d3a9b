#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bench_harness.h"
#include "kernels/cuda/bench_rows.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"

namespace skein::kernels::cuda {
namespace {

// Rows of 128,256 logits.
struct DrawRowsOf {
  DrawRowsOf(Bench& bench, int32_t rows)
      : floats(rows * kTokens),
        sets(Bench::Sets(4 * floats)),
        // Of bf16 bits in pairs: some of them draw from few tokens, and some from many.
        logits(RandomBytes(sets * 4 * floats, bench.stream())),
        drawn(rows * static_cast<int64_t>(sizeof(DeviceDraw))) {}
  DrawRows Set(int set) const {
    return {.tokens = kTokens,
            .logits = static_cast<float*>(logits.data()) + set * floats,
            .logits_stride = kTokens,
            .drawn = static_cast<DeviceDraw*>(drawn.data())};
  }

  static constexpr int64_t kTokens = 128256;
  const int64_t floats;
  const int sets;
  const DeviceBytes logits, drawn;
};

void BenchGreedyDraws(Bench& bench, int32_t rows) {
  const std::string name = absl::StrCat("greedy draws of ", rows);
  if (!bench.Wants(name)) return;
  const DrawRowsOf of(bench, rows);
  std::vector<SetPair> draws;
  for (int32_t r = 0; r < rows; ++r) draws.push_back({r, r});
  const DeviceArray<SetPair> device_draws(draws);
  const DeviceArray<uint64_t> best(std::vector<uint64_t>(static_cast<size_t>(rows), 0));
  const DeviceArray<uint32_t> arrived(std::vector<uint32_t>(static_cast<size_t>(rows), 0));
  const double seconds = bench.Time(
      [&](int set) {
        return Enqueue(GreedyDraws{.draws = rows,
                                   .rows = device_draws.get(),
                                   .of = of.Set(set),
                                   .best = best.get(),
                                   .arrived = arrived.get()},
                       bench.stream());
      },
      of.sets);
  bench.Add(name, 4.0 * static_cast<double>(of.floats), 0, seconds);
}

// `like` for every row; where it penalises, by 1,024 tokens.
void BenchSampledDraws(Bench& bench, const std::string& what, int32_t rows, SampledDraw like) {
  if (!HopperForms()) return;
  const std::string name = absl::StrCat("sampled draws of ", rows, ", ", what);
  if (!bench.Wants(name)) return;
  constexpr int64_t kHistory = 1024;
  const DrawRowsOf of(bench, rows);
  std::vector<SampledDraw> draws;
  std::vector<int32_t> history;
  std::vector<SetPair> bias;
  std::mt19937 generator(1);
  for (int32_t r = 0; r < rows; ++r) {
    draws.push_back(like);
    draws.back().row = draws.back().slot = r;
    for (int64_t i = 0; i < kHistory; ++i) {
      history.push_back(static_cast<int32_t>(generator() % DrawRowsOf::kTokens));
    }
    for (int32_t b = 0; b < kSlotEntries; ++b) bias.push_back({b * 80, 0});
  }
  const DeviceArray<SampledDraw> device_draws(draws);
  const DeviceArray<int32_t> histories(history);
  const DeviceArray<SetPair> biases(bias);
  const DeviceArray<float> mus(std::vector<float>(static_cast<size_t>(rows), 6.0f));
  const double seconds = bench.Time(
      [&](int set) {
        return Enqueue(SampledDraws{.draws = rows,
                                    .rows = device_draws.get(),
                                    .of = of.Set(set),
                                    .slots = {.histories = histories.get(),
                                              .history_stride = kHistory,
                                              .lists = biases.get(),
                                              .mus = mus.get()}},
                       bench.stream());
      },
      of.sets);
  bench.Add(name, 4.0 * static_cast<double>(of.floats), 0, seconds);
}

void BenchAllDraws(Bench& bench, int32_t rows) {
  BenchGreedyDraws(bench, rows);
  const SampledDraw plain = {.uniform = 0.5f, .temperature = 0.8f};
  const auto with = [&](const std::string& what, auto... members) {
    SampledDraw draw = plain;
    ((draw.*(members.first) = members.second), ...);
    BenchSampledDraws(bench, what, rows, draw);
  };
  using D = SampledDraw;
  with("temperature");
  with("top_p", std::pair(&D::top_p, 0.9f));
  with("top_k, top_p, min_p", std::pair(&D::top_k, 50), std::pair(&D::top_p, 0.9f),
       std::pair(&D::min_p, 0.05f));
  with("typical_p", std::pair(&D::typical_p, 0.9f));
  with("mirostat", std::pair(&D::mirostat_tau, 5.0f));
  with("penalties", std::pair(&D::repetition_penalty, 1.1f), std::pair(&D::prompt, 512),
       std::pair(&D::output, 511), std::pair(&D::penalises, true));
  with("DRY", std::pair(&D::dry_multiplier, 0.8f), std::pair(&D::dry_base, 1.75f),
       std::pair(&D::dry_most, 129), std::pair(&D::prompt, 512), std::pair(&D::output, 511));
  with("20 log probabilities", std::pair(&D::logprobs, 20));
  with("all", std::pair(&D::repetition_penalty, 1.1f), std::pair(&D::frequency_penalty, 0.1f),
       std::pair(&D::prompt, 512), std::pair(&D::output, 511), std::pair(&D::penalises, true),
       std::pair(&D::biases, 300), std::pair(&D::top_k, 1000), std::pair(&D::typical_p, 0.95f),
       std::pair(&D::top_p, 0.9f), std::pair(&D::min_p, 0.05f), std::pair(&D::logprobs, 20));
}

}  // namespace

void BenchDraws(Bench& bench) {
  for (const int32_t rows : {1, 64, 256}) BenchAllDraws(bench, rows);
}

}  // namespace skein::kernels::cuda
