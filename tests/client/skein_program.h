// The skein program, for tests.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gtest/gtest.h"

namespace skein::client {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// The file with the id of its process, while it runs.
inline std::string SkeinPidFile() { return absl::StrCat(::testing::TempDir(), "/skein.pid"); }

// The file with what it has said on standard error so far.
inline std::string SkeinErrorFile() { return absl::StrCat(::testing::TempDir(), "/stderr"); }

// Runs the program to its end; one at a time.
inline Outcome Skein(const std::string& arguments, const std::string& program = "client/skein") {
  const std::string err = SkeinErrorFile();
  FILE* pipe = popen(
      absl::StrCat("echo $$ >", SkeinPidFile(), "; exec ", program, " ", arguments, " 2>", err)
          .c_str(),
      "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.out.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.err = ReadFileOrEmpty(err);
  return outcome;
}

// Ctrl-C for one that runs on another thread, and has sent a request.
inline void InterruptSkein() { kill(std::stoi(ReadFileOrEmpty(SkeinPidFile())), SIGINT); }

}  // namespace skein::client
