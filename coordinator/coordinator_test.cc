// The coordinator's program: flags, files, signals.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kProgram[] = "coordinator/coordinator ";
constexpr char kModel[] = " --model=checkpoints/bard --listen=127.0.0.1:0 ";

struct Outcome {
  int exit_code = -1;
  std::string output;
};

Outcome Execute(const std::string& command) {
  FILE* pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TEST(CoordinatorTest, ListensWritesItsPortAndEndsWith0OnSignals) {
  const std::string port_file = absl::StrCat(::testing::TempDir(), "/address");
  for (const char* signal : {"TERM", "INT"}) {
    std::remove(port_file.c_str());
    const Outcome outcome = Execute(absl::StrCat("timeout --preserve-status -s ", signal, " 2 ",
                                                 kProgram, kModel, "--port-file=", port_file));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("model bard"), HasSubstr("listening on 127.0.0.1:"),
                                      HasSubstr("drained")));
    std::ifstream file(port_file);
    std::string address;
    std::getline(file, address);
    EXPECT_THAT(address, ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]+"));
  }
}

TEST(CoordinatorTest, WhatIsWrongIsSaidWithItsFlag) {
  struct Case {
    const char* flags;
    int exit_code;
    const char* says;
  };
  const Case cases[] = {
      {"", 2, "--model"},
      {"--model=checkpoints/bard --drain-timeout=soon", 2, "'soon' is not a duration"},
      {"--model=checkpoints/bard --log-level=loud", 2, "'loud'"},
      {"--model=checkpoints/bard --nonsense", 2, "--nonsense"},
      {"--model=checkpoints/bard --layout=tp=x", 1, "tp=x"},
      {"--model=checkpoints/none --kv-memory=lots", 1, "--kv-memory: KV memory \"lots\""},
      {"--model=checkpoints/none --kv-memory=1.5", 1, "--kv-memory: KV memory \"1.5\""},
      {"--model=checkpoints/none --kv-dtype=f16", 1, "--kv-dtype: KV dtype \"f16\""},
      {"--model=checkpoints/none --swap-memory=0.5", 1, "--swap-memory: swap memory \"0.5\""},
      {"--model=checkpoints/none --step-tokens=-1", 2, "--step-tokens"},
      {"--model=checkpoints/none --step-tokens=3 --max-sequences=4", 1,
       "--step-tokens: 3 is less than --max-sequences, 4"},
      // Good ones: it goes on, to the model.
      {"--model=checkpoints/none --kv-memory=0.5 --kv-dtype=int8 --swap-memory=1GiB "
       "--step-tokens=256",
       1, "checkpoints/none"},
      {"--model=checkpoints/bard --listen=here", 1, "--listen: 'here'"},
      {"--model=checkpoints/bard --context-length=4096", 1, "4096 is not in [2, 1024]"},
      {"--model=checkpoints/none", 1, "checkpoints/none"},
      {"--model=synthetic:llama3-1b", 1, "has no tokenizer"},
      {"--model=checkpoints/bard --listen=127.0.0.1:0 --port-file=/nowhere/file", 1,
       "/nowhere/file"},
      {"--help", 0, "--heartbeat-timeout"},
      {"--help", 0, "127.0.0.1:50051"},  // --listen: loopback only unless told otherwise
      {"--version", 0, "."},
  };
  for (const Case& c : cases) {
    const Outcome outcome = Execute(absl::StrCat(kProgram, c.flags));
    EXPECT_EQ(outcome.exit_code, c.exit_code) << c.flags << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(c.says)) << c.flags;
  }
}

}  // namespace
}  // namespace skein::coordinator
