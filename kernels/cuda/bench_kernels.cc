// Times every kernel and says what it is bound by: bytes or operations, and the share of the
// ceiling that this run measured.
// `worker bench kernels` becomes this program where it computes on a GPU.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/flags/flags.h"
#include "kernels/cuda/bench_harness.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append_kv.h"
#include "kernels/cuda/split_k_linear.h"
#include "kernels/cuda/stream_k_linear.h"
#include "kernels/cuda/stream_k_sizes.h"
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

struct Matrix {
  const char* what;
  int64_t n;
  int64_t k;
  bool swiglu = false;
};

// Operands of a product, with weights that no cache holds; `enqueue` multiplies by those of a set.
void BenchProduct(
    Bench& bench, const char* kernel, const Matrix& m, int64_t rows, bool swiglu,
    const std::function<absl::Status(const void* in, const void* weight, void* out)>& enqueue) {
  const std::string name = absl::StrCat(kernel, " ", rows, ": ", m.what, " ", m.n, " x ", m.k);
  if (!bench.Wants(name)) return;
  const int64_t bytes = 2 * m.n * m.k;
  const int sets = Bench::Sets(bytes);
  const DeviceBytes weights = RandomBytes(sets * bytes, bench.stream());
  const DeviceBytes in = RandomBytes(2 * rows * m.k, bench.stream());
  const DeviceBytes out(2 * rows * m.n);
  const double seconds = bench.Time(
      [&](int set) {
        return enqueue(in.data(), static_cast<char*>(weights.data()) + set * bytes, out.data());
      },
      sets);
  const double outs = static_cast<double>(swiglu ? m.n / 2 : m.n);
  bench.Add(name, static_cast<double>(bytes) + 2.0 * rows * (m.k + outs), 2.0 * rows * m.n * m.k,
            seconds);
}

// FewRowsLinear, SplitKLinear or StreamKLinear; `op` has what only one of them has.
template <typename Linear>
void BenchOwn(Bench& bench, const char* kernel, const Matrix& m, int64_t rows, Linear op) {
  op.swiglu = m.swiglu;
  op.rows = rows;
  op.n = m.n;
  op.k = m.k;
  op.in_stride = m.k;
  op.weight_stride = m.k;
  op.out_stride = m.swiglu ? m.n / 2 : m.n;
  if constexpr (requires { op.multiprocessors; }) op.multiprocessors = bench.multiprocessors();
  BenchProduct(bench, kernel, m, rows, m.swiglu,
               [&](const void* in, const void* weight, void* out) {
                 op.in = in;
                 op.weight = weight;
                 op.out = out;
                 return Enqueue(op, bench.stream());
               });
}

void BenchFewRows(Bench& bench, const Matrix& m, int64_t rows) {
  if (!HopperForms()) return;
  BenchOwn(bench, "few rows", m, rows, FewRowsLinear{});
}

void BenchSplitK(Bench& bench, const Matrix& m, int64_t rows) {
  if (!HopperForms() || SplitKBlocks(m.n) == 1) return;
  BenchOwn(bench, "split-K", m, rows, SplitKLinear{.blocks = SplitKBlocks(m.n)});
}

void BenchStreamK(Bench& bench, const Matrix& m, int64_t rows) {
  if (!HopperForms()) return;
  const DeviceBytes workspace(StreamKWorkspaceBytes(bench.multiprocessors()));
  BenchOwn(bench, "stream-K", m, rows, StreamKLinear{.workspace = workspace.data()});
}

void BenchBlas(Bench& bench, const Matrix& m, int64_t rows) {
  BenchProduct(bench, "cuBLASLt", m, rows, /*swiglu=*/false,
               [&](const void* in, const void* weight, void* out) {
                 return bench.blas().Enqueue({.rows = rows,
                                              .n = m.n,
                                              .k = m.k,
                                              .in = in,
                                              .weight = weight,
                                              .out = out,
                                              .in_stride = m.k,
                                              .weight_stride = m.k,
                                              .out_stride = m.n},
                                             bench.stream());
               });
}

// Sequences of equal shape, their pages anywhere in the caches of several layers.
struct Attention {
  Attention(Bench& bench, int32_t sequences, int32_t rows, int32_t length, int32_t heads,
            int32_t kv_heads, int32_t head_dim, int32_t page_size, bool int8 = false)
      : sequences(sequences),
        rows(rows),
        heads(heads),
        kv{nullptr, kv_heads, head_dim, page_size, int8},
        pages((length + page_size - 1) / page_size),
        layer_bytes(sequences * pages * kv.PageBytes()),
        layers(Bench::Sets(layer_bytes)),
        cache(RandomBytes(layers * layer_bytes, bench.stream())),
        stride(int64_t{heads + 2 * kv_heads} * head_dim),
        qkv(RandomBytes(2 * sequences * rows * stride, bench.stream())),
        out(2 * sequences * rows * int64_t{heads} * head_dim) {
    std::vector<int32_t> begins = {0};
    std::vector<int32_t> slots;
    for (int32_t s = 0; s < sequences; ++s) {
      begins.push_back(begins.back() + rows);
      slots.push_back(s);
    }
    std::vector<int32_t> ids(static_cast<size_t>(sequences * pages));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(1));
    row_begin = std::make_unique<DeviceArray<int32_t>>(begins);
    slot_ids = std::make_unique<DeviceArray<int32_t>>(slots);
    lengths = std::make_unique<DeviceArray<int32_t>>(
        std::vector<int32_t>(static_cast<size_t>(sequences), length));
    tables = std::make_unique<DeviceArray<int32_t>>(ids);
  }
  PagedBatch batch() const {
    return {sequences, row_begin->get(), slot_ids->get(), lengths->get(), tables->get(), pages};
  }
  // Of all KV heads.
  double PositionBytes() const { return static_cast<double>(kv.PageBytes()) / kv.page_size; }
  KvLayer Layer(int layer) const {
    KvLayer of = kv;
    of.data = static_cast<char*>(cache.data()) + layer * layer_bytes;
    return of;
  }

  int32_t sequences, rows, heads;
  KvLayer kv;
  int64_t pages, layer_bytes;
  int layers;
  DeviceBytes cache;
  int64_t stride;
  DeviceBytes qkv, out;
  std::unique_ptr<DeviceArray<int32_t>> row_begin, slot_ids, lengths, tables;
};

void BenchDecode(Bench& bench, int32_t sequences, int32_t length, int32_t heads, int32_t kv_heads,
                 int32_t head_dim, int32_t page_size, bool int8 = false) {
  const std::string name =
      absl::StrCat("decode attention ", sequences, " of ", length, ", ", heads, "/", kv_heads,
                   " x ", head_dim, " page ", page_size, int8 ? " int8" : "");
  if (!bench.Wants(name)) return;
  const Attention a(bench, sequences, 1, length, heads, kv_heads, head_dim, page_size, int8);
  const DeviceBytes plan(DecodePlanBytes(sequences, bench.multiprocessors()));
  const DeviceBytes partials(
      DecodePartialBytes(heads, kv_heads, head_dim, bench.multiprocessors()));
  const PlanDecode planning = {.batch = a.batch(),
                               .kv_heads = kv_heads,
                               .multiprocessors = bench.multiprocessors(),
                               .plan = plan.data()};
  Require(Enqueue(planning, bench.stream()));
  const double seconds = bench.Time(
      [&](int layer) {
        return Enqueue(DecodeAttention{.batch = a.batch(),
                                       .heads = heads,
                                       .kv = a.Layer(layer),
                                       .scale = 0.09f,
                                       .multiprocessors = bench.multiprocessors(),
                                       .plan = plan.data(),
                                       .early = true,
                                       .partials = partials.data(),
                                       .q = a.qkv.data(),
                                       .out = a.out.data(),
                                       .q_stride = a.stride,
                                       .out_stride = int64_t{heads} * head_dim},
                       bench.stream());
      },
      a.layers);
  const double positions = static_cast<double>(sequences) * length;
  bench.Add(name, positions * a.PositionBytes(), 4.0 * positions * heads * head_dim, seconds);
}

void BenchPlan(Bench& bench, int32_t sequences) {
  const std::string name = absl::StrCat("PlanDecode of ", sequences);
  if (!bench.Wants(name)) return;
  const Attention a(bench, sequences, 1, 1000, 8, 8, 64, 16);
  const DeviceBytes plan(DecodePlanBytes(sequences, bench.multiprocessors()));
  const PlanDecode planning = {.batch = a.batch(),
                               .kv_heads = 8,
                               .multiprocessors = bench.multiprocessors(),
                               .plan = plan.data()};
  bench.Add(name, 0, 0, bench.Time([&](int) { return Enqueue(planning, bench.stream()); }, 8));
}

void BenchPrefill(Bench& bench, PrefillForm form, int32_t sequences, int32_t rows, int32_t length,
                  int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t page_size,
                  bool int8 = false) {
  if (form == PrefillForm::kWarpgroups && !HopperForms()) return;
  const std::string name =
      absl::StrCat("prefill attention ", form == PrefillForm::kWarps ? "mma " : "wgmma ", sequences,
                   " x ", rows, " to ", length, ", ", heads, "/", kv_heads, " x ", head_dim,
                   " page ", page_size, int8 ? " int8" : "");
  if (!bench.Wants(name)) return;
  const Attention a(bench, sequences, rows, length, heads, kv_heads, head_dim, page_size, int8);
  const double seconds = bench.Time(
      [&](int layer) {
        return Enqueue(PrefillAttention{.batch = a.batch(),
                                        .rows = int64_t{sequences} * rows,
                                        .heads = heads,
                                        .kv = a.Layer(layer),
                                        .scale = 0.09f,
                                        .q = a.qkv.data(),
                                        .out = a.out.data(),
                                        .q_stride = a.stride,
                                        .out_stride = int64_t{heads} * head_dim,
                                        .form = form},
                       bench.stream());
      },
      a.layers);
  const double pairs = sequences * (static_cast<double>(rows) * (length - rows) +
                                    0.5 * static_cast<double>(rows) * (rows + 1));
  const double bytes =
      sequences * (length * a.PositionBytes() + 4.0 * static_cast<double>(rows) * heads * head_dim);
  bench.Add(name, bytes, 4.0 * pairs * heads * head_dim, seconds);
}

void BenchRope(Bench& bench, int32_t rows, bool int8) {
  const std::string name =
      absl::StrCat("RoPE + KV write ", rows, ", 32/8 x 128", int8 ? " int8" : "");
  if (!bench.Wants(name)) return;
  const Attention a(bench, rows, 1, 16, 32, 8, 128, 16, int8);
  const int sets = Bench::Sets(2 * rows * a.stride);
  const DeviceBytes qkv = RandomBytes(2 * sets * rows * a.stride, bench.stream());
  std::vector<int64_t> slots;
  for (int32_t r = 0; r < rows; ++r) slots.push_back(int64_t{r} * 16 + r % 16);
  const DeviceArray<int64_t> kv_slots(slots);
  const DeviceArray<int32_t> positions(std::vector<int32_t>(static_cast<size_t>(rows), 777));
  const DeviceArray<float> frequencies(std::vector<float>(64, 0.3f));
  const double seconds = bench.Time(
      [&](int set) {
        return Enqueue(
            RopeAppendKv{.rows = rows,
                         .heads = 32,
                         .qkv = static_cast<char*>(qkv.data()) + 2 * set * rows * a.stride,
                         .qkv_stride = a.stride,
                         .kv = a.Layer(set % a.layers),
                         .inverse_frequencies = frequencies.get(),
                         .positions = positions.get(),
                         .kv_slots = kv_slots.get()},
            bench.stream());
      },
      sets);
  // Read are all, written the queries and the cache.
  bench.Add(name, rows * (2.0 * static_cast<double>(a.stride + 32 * 128) + a.PositionBytes()), 0,
            seconds);
}

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

void BenchDraws(Bench& bench, int32_t rows) {
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

void RunAll(Bench& bench) {
  bench.MeasureCeilings();
  const Matrix matrices[] = {{"8B qkv", 6144, 4096},
                             {"8B o", 4096, 4096},
                             {"8B gate/up", 28672, 4096, true},
                             {"8B down", 4096, 14336},
                             {"8B head", 128256, 4096},
                             {"1B qkv", 3072, 2048},
                             {"1B o", 2048, 2048},
                             {"1B gate/up", 16384, 2048, true},
                             {"1B down", 2048, 8192}};
  for (const int64_t rows : {1, 4, 8, 16}) {
    for (const Matrix& m : matrices) BenchFewRows(bench, m, rows);
  }
  for (const int64_t rows : {1, 8, 16, 32, 64}) {
    for (const Matrix& m : matrices) {
      BenchSplitK(bench, m, rows);
      BenchStreamK(bench, m, rows);
    }
  }
  for (const int64_t rows : {1, 8, 16, 32, 64, 128, 192, 256, 2048}) {
    for (int i = 0; i < 5; ++i) BenchBlas(bench, matrices[i], rows);
  }
  for (const int32_t page : {16, 64}) {
    for (const auto& [sequences, length] : {std::pair{1, 512},
                                            {1, 1024},
                                            {1, 8192},
                                            {1, 131072},
                                            {8, 1024},
                                            {64, 768},
                                            {64, 4096},
                                            {256, 640},
                                            {256, 4096}}) {
      BenchDecode(bench, sequences, length, 32, 8, 128, page);
    }
  }
  BenchDecode(bench, 64, 4096, 64, 8, 128, 16);
  BenchDecode(bench, 64, 4096, 64, 4, 128, 16);
  BenchDecode(bench, 64, 4096, 8, 8, 128, 16);
  BenchDecode(bench, 64, 4096, 32, 8, 64, 16);
  BenchDecode(bench, 64, 4096, 32, 8, 96, 16);
  for (const int32_t page : {16, 64}) {
    BenchDecode(bench, 1, 131072, 32, 8, 128, page, /*int8=*/true);
    BenchDecode(bench, 64, 4096, 32, 8, 128, page, /*int8=*/true);
    BenchDecode(bench, 256, 640, 32, 8, 128, page, /*int8=*/true);
  }
  BenchDecode(bench, 64, 4096, 64, 4, 128, 16, /*int8=*/true);
  BenchDecode(bench, 64, 4096, 8, 8, 128, 16, /*int8=*/true);
  BenchDecode(bench, 64, 4096, 32, 8, 64, 16, /*int8=*/true);
  BenchDecode(bench, 64, 4096, 32, 8, 96, 16, /*int8=*/true);
  BenchPlan(bench, 1);
  BenchPlan(bench, 256);
  for (PrefillForm form : {PrefillForm::kWarps, PrefillForm::kWarpgroups}) {
    for (const int32_t page : {16, 64}) {
      for (const int32_t rows : {512, 2048, 16384}) {
        BenchPrefill(bench, form, 1, rows, rows, 32, 8, 128, page);
      }
    }
    BenchPrefill(bench, form, 1, 512, 16384, 32, 8, 128, 16);
    BenchPrefill(bench, form, 16, 128, 1024, 32, 8, 128, 16);
    BenchPrefill(bench, form, 1, 16384, 16384, 32, 8, 64, 16);
    BenchPrefill(bench, form, 1, 16384, 16384, 32, 8, 96, 16);
    BenchPrefill(bench, form, 1, 2048, 2048, 32, 8, 128, 16, /*int8=*/true);
    for (const int32_t head_dim : {64, 96, 128}) {
      BenchPrefill(bench, form, 1, 16384, 16384, 32, 8, head_dim, 16, /*int8=*/true);
    }
  }
  for (const int64_t rows : {1, 64, 2048}) BenchRmsNorm(bench, rows, 4096);
  for (const int32_t rows : {1, 64, 2048}) {
    for (const bool int8 : {false, true}) BenchRope(bench, rows, int8);
  }
  for (const int64_t rows : {1, 64, 2048}) {
    BenchSwiGlu(bench, rows, 14336, GateUpLayout::kHalves);
    BenchSwiGlu(bench, rows, 14336, GateUpLayout::kInterleaved);
  }
  for (const int64_t rows : {1, 64, 2048}) BenchGather(bench, rows, 4096);
  for (const int32_t rows : {1, 64, 256}) BenchDraws(bench, rows);
}

}  // namespace
}  // namespace skein::kernels::cuda

int main(int argc, char** argv) {
  CLI::App app("Times every kernel of GPUs.");
  app.name("bench_kernels");
  std::string only;
  std::string json_file;
  app.add_option("only,--only", only, "only rows whose name holds this");
  app.add_option("--json", json_file, "write the rows, the machine and its ceilings into this file")
      ->check(skein::NotEmpty());
  if (const std::optional<int> code = skein::ParseCommandLine(app, argc, argv)) return *code;
  const absl::StatusOr<bool> has_gpu = skein::kernels::cuda::HasGpu();
  if (!has_gpu.ok()) {
    std::fprintf(stderr, "%s\n", has_gpu.status().ToString().c_str());
    return skein::kExitError;
  }
  if (!*has_gpu) {
    std::puts("no GPU");
    return skein::kExitOk;
  }
  skein::kernels::cuda::Bench bench(only);
  skein::kernels::cuda::RunAll(bench);
  if (json_file.empty()) return skein::kExitOk;
  const absl::Status written = skein::WriteFile(json_file, bench.report().ToJson());
  if (written.ok()) return skein::kExitOk;
  std::fprintf(stderr, "--json: %s\n", std::string(written.message()).c_str());
  return skein::kExitError;
}
