#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bench_harness.h"
#include "kernels/cuda/bench_rows.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/rope_append_kv.h"

namespace skein::kernels::cuda {
namespace {

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

}  // namespace

void BenchAttention(Bench& bench) {
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
  for (const int32_t rows : {1, 64, 2048}) {
    for (const bool int8 : {false, true}) BenchRope(bench, rows, int8);
  }
}

}  // namespace skein::kernels::cuda
