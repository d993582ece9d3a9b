// Measures products of the shapes of a 1B model (hidden 2048, ffn 8192, vocabulary 128,256), with
// bf16 weights, beside what binds them: bytes per second of a plain read loop in the same run for
// decode, operations per second for prefill.
//
//   bazel run //kernels/cpu:bench_matmul -- [threads [mask of Highway's targets]]
//
// From 8 rows on f32 arithmetic binds, not reading: 8 operations a byte of weights.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/cpu/cpu_backend.h"

namespace skein::kernels {
namespace {

struct Shape {
  const char* name;
  int64_t rows;  // outputs
  int64_t cols;
  int32_t inner_blocks;
};

// Weights of so many bytes are multiplied in turn, so that none is left in a cache.
constexpr int64_t kStreamBytes = int64_t{1} << 30;

template <typename T>
T OrExit(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

void OrExit(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Returns the median seconds of a product with one weight.
double Measure(Executable& executable, int64_t rows, int64_t copies) {
  executable.batch(0) = {.sequences = {{.rows = static_cast<int32_t>(rows)}},
                         .token_ids = std::vector<int32_t>(rows)};
  std::vector<double> seconds;
  for (int pass = 0; pass < 5; ++pass) {
    const absl::Time start = absl::Now();
    OrExit(executable.Enqueue(0));
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start) / static_cast<double>(copies));
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

void Bench(Backend& backend, const Shape& shape, ReadProbe& probe) {
  const WeightSpec spec{.rows = shape.rows, .cols = shape.cols, .inner_blocks = shape.inner_blocks};
  const int64_t copies = std::max<int64_t>(1, kStreamBytes / PackedBytes(spec));
  const absl::Time start = absl::Now();
  Program program{.buffers = {{.name = "in", .cols = shape.cols, .port = true},
                              {.name = "out", .cols = shape.rows}}};
  const std::vector<std::byte> tile(DTypeBytes(spec.dtype, kTileRows * spec.cols), std::byte{0x3c});
  for (int64_t i = 0; i < copies; ++i) {
    program.weights.push_back({.name = shape.name, .spec = spec});
    program.ops.push_back(MatMulOp{0, static_cast<WeightId>(i), 1});
  }
  const auto weights = OrExit(backend.AllocateWeights(program));
  for (WeightId id = 0; id < static_cast<WeightId>(copies); ++id) {
    for (int64_t r = 0; r < spec.rows; r += kTileRows) {
      const int64_t count = std::min(kTileRows, spec.rows - r);
      auto staged = OrExit(weights->Stage(DTypeBytes(spec.dtype, count * spec.cols)));
      std::copy_n(tile.begin(), staged->bytes().size(), staged->bytes().begin());
      OrExit(weights->Load({.weight = id, .first = r, .count = count}, std::move(staged)));
    }
  }
  const double packed_bytes = static_cast<double>(copies * PackedBytes(spec));
  std::printf("%-8s packed at %.1f GB/s by one thread\n", shape.name,
              packed_bytes / absl::ToDoubleSeconds(absl::Now() - start) / 1e9);
  const auto executable =
      OrExit(backend.Compile(program, {.rows = 128}, {.weights = weights.get()}));
  if (!executable->WarmUp().ok()) std::exit(1);
  const View in = executable->port(0, 0);
  std::fill_n(static_cast<float*>(in.data), in.elements(), 0.5f);
  for (int64_t rows : {1, 2, 4, 6, 8, 16, 128}) {
    const double read_before = probe.Pass();
    const double seconds = Measure(*executable, rows, copies);
    const double read_rate = (read_before + probe.Pass()) / 2;
    const auto bytes = static_cast<double>(weights->bytes(0));
    const double rate = bytes / seconds;
    const double operations = 2.0 * static_cast<double>(rows * spec.rows * spec.cols);
    std::printf(
        "%-8s %6ld x %4ld %4ld rows %8.1f us %7.1f MB %6.1f GB/s %4.0f%% of reading at %.1f "
        "%6.1f GFLOP/s\n",
        shape.name, static_cast<long>(shape.rows), static_cast<long>(shape.cols),
        static_cast<long>(rows), seconds * 1e6, bytes / 1e6, rate / 1e9, 100 * rate / read_rate,
        read_rate / 1e9, operations / seconds / 1e9);
  }
}

}  // namespace
}  // namespace skein::kernels

int main(int argc, char** argv) {
  using namespace skein::kernels;
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  const int64_t simd = argc > 2 ? std::atoll(argv[2]) : 0;
  const auto backend = OrExit(MakeCpuBackend({.threads = threads, .simd_targets = simd}));
  ReadProbe probe = OrExit(ReadProbe::Create(threads, kStreamBytes));
  for (const Shape& shape :
       {Shape{"qkv", 3072, 2048, 1}, Shape{"o", 2048, 2048, 8}, Shape{"gate_up", 16384, 2048, 1},
        Shape{"down", 2048, 8192, 8}, Shape{"logits", 128256, 2048, 1}}) {
    Bench(*backend, shape, probe);
  }
  return 0;
}
