#include "tests/cluster/test_device.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"

namespace skein::testing {
namespace {

class SkipWithoutGpu final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    static const auto gpus = kernels::ListCudaDevices();
    if (gpus.ok() && gpus->empty()) GTEST_SKIP() << "no GPU";
  }
};

const bool listens = [] {
  if (OnGpus()) ::testing::UnitTest::GetInstance()->listeners().Append(new SkipWithoutGpu);
  return true;
}();

}  // namespace

bool OnGpus() {
  const char* const device = std::getenv("SKEIN_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

bool StepsTakeTurns(int ranks) {
  const char* const decode = std::getenv("SKEIN_TEST_DECODE");
  if (!OnGpus() || decode == nullptr || std::string_view(decode) != "persistent") return false;
  const auto gpus = kernels::ListCudaDevices();
  return gpus.ok() && static_cast<int>(gpus->size()) < ranks;
}

std::vector<std::string> WorkerDeviceFlags() {
  if (!OnGpus()) return {};
  std::vector<std::string> flags = {"--device=cuda", "--oversubscribe-devices"};
  if (const char* const decode = std::getenv("SKEIN_TEST_DECODE"); decode != nullptr) {
    flags.push_back(absl::StrCat("--decode=", decode));
  }
  return flags;
}

std::vector<std::string> WithGpus(int first, int gpus) {
  std::vector<int> numbers(gpus);
  std::iota(numbers.begin(), numbers.end(), first);
  return {"-x", absl::StrCat("CUDA_VISIBLE_DEVICES=", absl::StrJoin(numbers, ","))};
}

std::vector<std::string> LaunchDeviceFlags(int index, int ranks) {
  if (!OnGpus()) return {};
  const auto gpus = kernels::ListCudaDevices();
  const int jobs = gpus.ok() ? static_cast<int>(gpus->size()) / ranks : 0;
  if (jobs < 2) return {};
  return WithGpus(index % jobs * ranks, ranks);
}

std::vector<std::string> CoordinatorDeviceFlags(const std::vector<std::string>& given) {
  std::vector<std::string> flags;
  if (!OnGpus()) return flags;
  for (const std::string_view flag : {"--deterministic", "--max-num-seqs=16",
                                      "--max-num-batched-tokens=256", "--kv-memory=1GiB"}) {
    // Equal bits go by graphs.
    if (flag == "--deterministic" && std::getenv("SKEIN_TEST_DECODE") != nullptr) continue;
    const std::string name(flag.substr(0, flag.find('=')));
    const bool is_given = std::any_of(given.begin(), given.end(), [&](const std::string& other) {
      return other == name || other.starts_with(name + "=");
    });
    if (!is_given) flags.emplace_back(flag);
  }
  return flags;
}

}  // namespace skein::testing
