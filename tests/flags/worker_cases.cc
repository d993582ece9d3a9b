#include "tests/flags/worker_cases.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace skein::testing {

std::string WorkerWith(const std::string& fake) {
  namespace fs = std::filesystem;
  const fs::path root = NewPath("installed");
  fs::create_directories(root / "bin");
  fs::create_directories(root / "lib");
  fs::copy_file(kWorker, root / "bin/worker");
  if (!fake.empty()) {
    fs::copy_file("kernels/cuda/fake_" + fake + ".so", root / "lib/libskein_cuda.so");
  }
  return root / "bin/worker";
}

std::string Said(const Outcome& outcome) {
  return absl::StrCat("status ", outcome.exit_code, "\n", outcome.out, outcome.err);
}

}  // namespace skein::testing
