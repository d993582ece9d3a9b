#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/bench_harness.h"
#include "kernels/cuda/bench_rows.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/stream_k_linear.h"
#include "kernels/cuda/stream_k_sizes.h"
#include "kernels/cuda/wide_tile_linear.h"

namespace skein::kernels::cuda {
namespace {

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

// FewRowsLinear, WideTileLinear or StreamKLinear; `op` has what only one of them has.
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

void BenchWideTile(Bench& bench, const Matrix& m, int64_t rows) {
  if (!HopperForms()) return;
  const WideTile tile = WideTileOf(m.n, m.k, bench.multiprocessors());
  const std::string kernel = absl::StrCat("tile ", tile.rows, " by ", tile.blocks);
  BenchOwn(bench, kernel.c_str(), m, rows, WideTileLinear{.tile = tile});
}

void BenchStreamK(Bench& bench, const Matrix& m, int64_t rows) {
  if (!HopperForms() || rows > kStreamKRows) return;
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

}  // namespace

void BenchProducts(Bench& bench) {
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
      BenchWideTile(bench, m, rows);
      BenchStreamK(bench, m, rows);
    }
  }
  for (const int64_t rows : {1, 8, 16, 32, 64, 128, 192, 256, 2048}) {
    for (int i = 0; i < 5; ++i) BenchBlas(bench, matrices[i], rows);
  }
}

}  // namespace skein::kernels::cuda
