// The worker's program: its command line.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::HasSubstr;

TEST(WorkerTest, WhatIsWrongIsSaidWithItsFlagBeforeMpiStarts) {
  struct Case {
    const char* flags;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {"--help", 0, "--orphan-timeout"},
      {"bench --help", 0, "decode"},
      {"bench decode --help", 0, "--decode-tokens"},
      {"--version", 0, "."},
      {"--nonsense", 2, "worker: The following argument was not expected: --nonsense"},
      {"--coordinator nonsense", 2, "--coordinator: 'nonsense' is not HOST:PORT"},
      {"--coordinator head:0", 2, "--coordinator: 'head:0' is not HOST:PORT"},
      {"--coordinator=", 2, "--coordinator: '' is not HOST:PORT"},
      {"--backend gpu", 2, "--backend"},
      {"--device gpu", 2, "--device: must be cpu or cuda, not 'gpu'"},
      {"--orphan-timeout 0s", 2, "--orphan-timeout: must be a duration in [1ms, "},
      {"--step-timeout soon", 2, "--step-timeout: must be a duration"},
      {"--step-timeout 999ms", 2, "--step-timeout: must be a duration in [1s, "},
      {"--layout tp=x", 2, "--layout: "},
      {"--log-level loud", 2, "--log-level: must be trace, "},
      {"bench", 2, "A subcommand is required"},
      {"bench --model checkpoints/bard", 2, "--model"},
      {"bench decode --batch 0", 2, "--batch: must be a whole number in [1, 1024], not '0'"},
      {"bench decode --batch 1,x", 2, "--batch: must be a whole number in [1, 1024], not 'x'"},
      {"bench decode --decode-tokens 3", 2, "--decode-tokens: must be a whole number in [4, "},
      {"bench decode --min-fraction 2", 2, "--min-fraction: must be a number in [0, 1]"},
      {"bench decode --model /nowhere", 1, "--model: /nowhere/config.json"},
      {"bench prefill --model synthetic:x", 1, "--model: 'synthetic:x'"},
      {"bench prefill --prompt-tokens=0", 2, "--prompt-tokens: must be a whole number in [1, "},
      {"bench prefill --batch=1", 2, "--batch"},
      {"bench kernels --only=", 2, "--only: "},
      {"bench kernels --json=/nowhere/x", 1, "--json: cannot write '/nowhere/x'"},
      {"bench comm", 1, "there is one rank"},
  };
  for (const Case& c : cases) {
    FILE* pipe = popen(absl::StrCat("worker/worker ", c.flags, " 2>&1").c_str(), "r");
    std::string output;
    std::array<char, 4096> buffer;
    while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), count);
    }
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status)) << c.flags;
    EXPECT_EQ(WEXITSTATUS(status), c.exit_code) << c.flags;
    EXPECT_THAT(output, HasSubstr(c.says)) << c.flags;
  }
}

}  // namespace
}  // namespace skein::worker
