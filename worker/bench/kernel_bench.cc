#include "worker/bench/kernel_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/bench/report.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/cpu/ceilings.h"
#include "kernels/packing/layout.h"
#include "worker/bench/bench_device.h"
#include "worker/device.h"

namespace skein::worker {
namespace {

namespace fs = std::filesystem;

using kernels::WeightId;
using kernels::WeightSpec;

struct Shape {
  const char* name;
  int64_t rows;  // outputs
  int64_t cols;
  int32_t inner_blocks;
};
constexpr Shape kShapes[] = {{"1B qkv", 3072, 2048, 1},
                             {"1B o", 2048, 2048, 8},
                             {"1B gate/up", 16384, 2048, 1},
                             {"1B down", 2048, 8192, 8},
                             {"1B head", 128256, 2048, 1}};
constexpr int32_t kRows[] = {1, 2, 4, 8, 16, 128};
constexpr int kPasses = 5;

std::string NameOf(const Shape& shape, int32_t rows) {
  return absl::StrCat("product of ", rows, ": ", shape.name, " ", shape.rows, " x ", shape.cols);
}

// So many copies of a matrix, which are multiplied in turn, so that none is left in a cache.
class Products {
 public:
  static absl::StatusOr<std::unique_ptr<Products>> Make(const Shape& shape,
                                                        kernels::Backend& backend) {
    const WeightSpec spec = {
        .rows = shape.rows, .cols = shape.cols, .inner_blocks = shape.inner_blocks};
    auto products = std::make_unique<Products>();
    products->copies_ = std::max<int64_t>(1, BytesBeyondCaches() / kernels::PackedBytes(spec));
    kernels::Program& program = products->program_;
    program.buffers = {{.name = "in", .cols = shape.cols, .port = true},
                       {.name = "out", .cols = shape.rows}};
    for (WeightId id = 0; id < static_cast<WeightId>(products->copies_); ++id) {
      program.weights.push_back({.name = shape.name, .spec = spec});
      program.ops.push_back(kernels::MatMulOp{0, id, 1});
    }
    SKEIN_ASSIGN_OR_RETURN(products->weights_, backend.AllocateWeights(program));
    SKEIN_RETURN_IF_ERROR(products->Fill(spec));
    SKEIN_ASSIGN_OR_RETURN(products->executable_,
                           backend.Compile(program, {.rows = kRows[std::size(kRows) - 1]},
                                           {.weights = products->weights_.get()}));
    SKEIN_RETURN_IF_ERROR(products->executable_->WarmUp());
    const View in = products->executable_->port(0, 0);
    std::fill_n(static_cast<float*>(in.data), in.elements(), 0.5f);
    return products;
  }

  int64_t bytes() const { return weights_->bytes(0); }

  // Seconds of one product.
  absl::StatusOr<double> Time(int32_t rows) {
    executable_->batch(0) = {.sequences = {{.rows = rows}},
                             .token_ids = std::vector<int32_t>(static_cast<size_t>(rows))};
    const absl::Time begin = absl::Now();
    SKEIN_RETURN_IF_ERROR(executable_->Enqueue(0).status());
    return absl::ToDoubleSeconds(absl::Now() - begin) / static_cast<double>(copies_);
  }

 private:
  absl::Status Fill(const WeightSpec& spec) {
    constexpr std::byte kAny{0x3c};
    const int64_t step = kernels::kTileRows;
    for (WeightId id = 0; id < static_cast<WeightId>(copies_); ++id) {
      for (int64_t row = 0; row < spec.rows; row += step) {
        const int64_t count = std::min(step, spec.rows - row);
        SKEIN_ASSIGN_OR_RETURN(auto staged,
                               weights_->Stage(DTypeBytes(spec.dtype, count * spec.cols)));
        std::fill(staged->bytes().begin(), staged->bytes().end(), kAny);
        SKEIN_RETURN_IF_ERROR(
            weights_->Load({.weight = id, .first = row, .count = count}, std::move(staged)));
      }
    }
    return weights_->FinishLoading();
  }

  kernels::Program program_;
  int64_t copies_ = 0;
  std::unique_ptr<kernels::Weights> weights_;
  std::unique_ptr<kernels::Executable> executable_;
};

absl::Status TimeOnCpu(const KernelBenchOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const auto alone, BenchRanks::Start({}));
  SKEIN_ASSIGN_OR_RETURN(
      BenchDevice device,
      OpenBenchDevice({.device = options.device, .threads = options.threads}, *alone));
  BenchReport report("kernels", "", device.machine);
  report.Begin();
  SKEIN_ASSIGN_OR_RETURN(kernels::ReadProbe probe,
                         kernels::ReadProbe::Create(device.threads, BytesBeyondCaches()));
  for (const Shape& shape : kShapes) {
    std::unique_ptr<Products> products;
    for (const int32_t rows : kRows) {
      const std::string name = NameOf(shape, rows);
      if (name.find(options.only) == std::string::npos) continue;
      ShowProgress(name);
      if (products == nullptr) {
        SKEIN_ASSIGN_OR_RETURN(products, Products::Make(shape, *device.backend));
      }
      std::vector<double> seconds;
      std::vector<double> reads = {probe.Pass()};
      for (int pass = 0; pass < kPasses; ++pass) {
        SKEIN_ASSIGN_OR_RETURN(seconds.emplace_back(), products->Time(rows));
        reads.push_back(probe.Pass());
      }
      Ceilings ceilings = device.machine.ceilings;
      ceilings.bytes_per_s = Median(std::move(reads));
      report.Add({.name = name,
                  .fields = {{"rows", rows}},
                  .seconds = Median(std::move(seconds)),
                  .samples = kPasses,
                  .bytes = static_cast<double>(products->bytes()),
                  .operations = 2.0 * rows * static_cast<double>(shape.rows * shape.cols),
                  .ceilings = ceilings});
    }
  }
  return report.WriteJson(options.json_file);
}

// Where a package has it, and where Bazel puts it.
absl::StatusOr<std::string> FindBenchKernels() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place :
       {here / "../gpu/bench_kernels", here / "../kernels/cuda/bench_kernels"}) {
    if (fs::is_regular_file(place, error)) return place.lexically_normal().string();
  }
  return absl::NotFoundError(absl::StrCat(
      "bench_kernels, which times the kernels of GPUs, is not in ", (here / "../gpu").string(),
      "; packages with CUDA have it, and `bazel build --config=cuda //kernels/cuda:bench_kernels` "
      "makes it; --device=cpu times those of CPUs"));
}

absl::Status BecomeBenchKernels(const KernelBenchOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const std::string path, FindBenchKernels());
  std::vector<std::string> arguments = {path};
  if (!options.only.empty()) arguments.push_back("--only=" + options.only);
  if (!options.json_file.empty()) arguments.push_back("--json=" + options.json_file);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  return absl::InternalError(absl::StrCat("cannot run ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status RunKernelBench(const KernelBenchOptions& options) {
  SKEIN_RETURN_IF_ERROR(CheckJsonFile(options.json_file));
  SKEIN_ASSIGN_OR_RETURN(const RankDevice device, ChooseDevice({.asked = options.device}));
  return device.device.kind == DeviceKind::kCuda ? BecomeBenchKernels(options) : TimeOnCpu(options);
}

}  // namespace skein::worker
