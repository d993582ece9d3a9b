// Loads one shard of a model in a process of its own and prints what that took:
//   shard_probe FOLDER TENSOR SHARD PIPELINE STAGE
//   -> "bytes_read packed_bytes baseline_hwm_bytes hwm_bytes"
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config/model_config.h"
#include "model/format/open.h"
#include "parallel/plan/shard.h"
#include "parallel/program/rank_program.h"
#include "worker/loader/shard_loader.h"

namespace {

long long VmHwmBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atoll(line.c_str() + 6) * 1024;
  }
  return -1;
}

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace skein;
  if (argc != 6) return 2;
  const std::string folder = argv[1];
  const int tp_size = std::atoi(argv[2]), shard = std::atoi(argv[3]);
  const int pp_size = std::atoi(argv[4]), stage = std::atoi(argv[5]);
  const auto config = OrDie(model::LoadModelConfig(folder));
  auto backend = OrDie(kernels::MakeCpuBackend({.threads = 2}));
  // A rank with an empty model: everything is started, nothing is loaded.
  const long long baseline = VmHwmBytes();
  const auto tensors = OrDie(model::OpenTensorSource(folder));
  const auto program = OrDie(
      plan::BuildRankProgram(config, tensors.get(),
                             {.tp_size = tp_size,
                              .tp_rank = shard,
                              .layers = plan::StageLayers(config.num_layers, pp_size, stage)}));
  const auto loaded = OrDie(worker::LoadShard(*tensors, program, *backend, {.threads = 2}));
  const long long packed = loaded.weights->bytes();
  if (loaded.bytes_read != tensors->bytes_read()) return 3;
  std::printf("%lld %lld %lld %lld\n", static_cast<long long>(tensors->bytes_read()), packed,
              baseline, VmHwmBytes());
}
