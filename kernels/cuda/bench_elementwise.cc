#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bench_harness.h"
#include "kernels/cuda/bench_rows.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/swiglu.h"

namespace skein::kernels::cuda {
namespace {

void BenchRmsNorm(Bench& bench, int64_t rows, int64_t cols) {
  const std::string name = absl::StrCat("RmsNorm + residual ", rows, " x ", cols);
  if (!bench.Wants(name)) return;
  const int64_t bytes = 2 * rows * cols;
  const int sets = Bench::Sets(3 * bytes);
  const DeviceBytes residual = RandomBytes(sets * bytes, bench.stream());
  const DeviceBytes delta = RandomBytes(sets * bytes, bench.stream());
  const DeviceBytes out(sets * bytes);
  const DeviceArray<float> gain(std::vector<float>(static_cast<size_t>(cols), 1.0f));
  const auto at = [&](const DeviceBytes& memory, int set) {
    return static_cast<char*>(memory.data()) + set * bytes;
  };
  const double seconds = bench.Time(
      [&](int set) {
        return Enqueue(RmsNorm{.rows = rows,
                               .cols = cols,
                               .residual = at(residual, set),
                               .delta = at(delta, set),
                               .gain = gain.get(),
                               .eps = 1e-5f,
                               .out = at(out, set),
                               .residual_stride = cols,
                               .delta_stride = cols,
                               .out_stride = cols},
                       bench.stream());
      },
      sets);
  bench.Add(name, 4.0 * static_cast<double>(bytes), 0, seconds);
}

void BenchSwiGlu(Bench& bench, int64_t rows, int64_t cols, GateUpLayout layout) {
  const std::string name = absl::StrCat(
      "SwiGlu ", layout == GateUpLayout::kHalves ? "halves " : "interleaved ", rows, " x ", cols);
  if (!bench.Wants(name)) return;
  const int64_t bytes = 2 * rows * cols;
  const int sets = Bench::Sets(3 * bytes);
  const DeviceBytes in = RandomBytes(sets * 2 * bytes, bench.stream());
  const DeviceBytes out(sets * bytes);
  const double seconds = bench.Time(
      [&](int set) {
        return Enqueue(SwiGlu{.layout = layout,
                              .rows = rows,
                              .cols = cols,
                              .gate_up = static_cast<char*>(in.data()) + set * 2 * bytes,
                              .out = static_cast<char*>(out.data()) + set * bytes,
                              .gate_up_stride = 2 * cols,
                              .out_stride = cols},
                       bench.stream());
      },
      sets);
  bench.Add(name, 3.0 * static_cast<double>(bytes), 0, seconds);
}

void BenchGather(Bench& bench, int64_t rows, int64_t cols) {
  const std::string name = absl::StrCat("embedding ", rows, " x ", cols);
  if (!bench.Wants(name)) return;
  constexpr int64_t kTable = 128256;
  const DeviceBytes table = RandomBytes(2 * kTable * cols, bench.stream());
  const int sets = Bench::Sets(2 * rows * cols);
  std::vector<int32_t> ids;
  std::mt19937 generator(1);
  for (int64_t i = 0; i < sets * rows; ++i)
    ids.push_back(static_cast<int32_t>(generator() % kTable));
  const DeviceArray<int32_t> numbers(ids);
  const DeviceBytes out(2 * sets * rows * cols);
  const double seconds = bench.Time(
      [&](int set) {
        return Enqueue(GatherRows{.rows = rows,
                                  .cols = cols,
                                  .ids = numbers.get() + set * rows,
                                  .count = kTable,
                                  .in = table.data(),
                                  .out = static_cast<char*>(out.data()) + 2 * set * rows * cols,
                                  .in_stride = cols,
                                  .out_stride = cols},
                       bench.stream());
      },
      sets);
  bench.Add(name, 4.0 * static_cast<double>(rows * cols), 0, seconds);
}

}  // namespace

void BenchElementwise(Bench& bench) {
  for (const int64_t rows : {1, 64, 2048}) BenchRmsNorm(bench, rows, 4096);
  for (const int64_t rows : {1, 64, 2048}) {
    BenchSwiGlu(bench, rows, 14336, GateUpLayout::kHalves);
    BenchSwiGlu(bench, rows, 14336, GateUpLayout::kInterleaved);
  }
  for (const int64_t rows : {1, 64, 2048}) BenchGather(bench, rows, 4096);
}

}  // namespace skein::kernels::cuda
