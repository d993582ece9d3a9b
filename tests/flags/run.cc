#include "tests/flags/run.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/cluster/process.h"

namespace skein::testing {

Outcome Run(const std::string& program, const std::string& arguments,
            const Environment& environment) {
  const std::string err = NewPath("stderr");
  Process process({.name = "run",
                   .argv = {"sh", "-c", absl::StrCat("exec ", program, " ", arguments, " 2>", err)},
                   .environment = environment});
  const std::optional<int> status = process.Wait(absl::Minutes(1));
  EXPECT_TRUE(status.has_value()) << program << " " << arguments << " does not end";
  return {status.value_or(-1), process.Output(), ReadFileOrEmpty(err)};
}

int MostThreads(const std::string& program, const std::string& arguments) {
  Process process(
      {.name = "run", .argv = {"sh", "-c", absl::StrCat("exec ", program, " ", arguments)}});
  const std::filesystem::path tasks = absl::StrCat("/proc/", process.pid(), "/task");
  int most = 0;
  while (!process.Wait(absl::Milliseconds(5))) {
    std::error_code gone;
    std::filesystem::directory_iterator entries(tasks, gone);
    most = std::max(most, static_cast<int>(std::distance(entries, {})));
  }
  return most;
}

std::string NewPath(const std::string& name) {
  static std::atomic<int> count{0};
  return absl::StrCat(::testing::TempDir(), "/", name, ".", count++);
}

std::string MakeModel(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(NewPath("models")) / name;
  fs::create_directories(folder);
  for (const fs::directory_entry& file : fs::directory_iterator("checkpoints/bard")) {
    fs::create_symlink(fs::absolute(file.path()), folder / file.path().filename());
  }
  return folder;
}

}  // namespace skein::testing
