// Times every kernel and says what it is bound by: bytes or operations, and the share of the
// ceiling that this run measured.
// `worker bench kernels` becomes this program where it computes on a GPU.
#include <cstdio>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "kernels/cuda/bench_harness.h"
#include "kernels/cuda/bench_rows.h"
#include "kernels/cuda/device_testing.h"

int main(int argc, char** argv) {
  CLI::App app("Times every kernel of GPUs.");
  app.name("bench_kernels");
  std::string only;
  std::string json_file;
  app.add_option("only,--only", only, "only rows whose name holds this");
  app.add_option(
         "--json", json_file,
         "write the rows, the machine and its ceilings into this file; -: print them behind the "
         "table")
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
  bench.MeasureCeilings();
  skein::kernels::cuda::BenchProducts(bench);
  skein::kernels::cuda::BenchAttention(bench);
  skein::kernels::cuda::BenchElementwise(bench);
  skein::kernels::cuda::BenchDraws(bench);
  const absl::Status written = bench.report().WriteJson(json_file);
  if (written.ok()) return skein::kExitOk;
  std::fprintf(stderr, "%s\n", std::string(written.message()).c_str());
  return skein::kExitError;
}
