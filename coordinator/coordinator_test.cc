// The coordinator's program: flags, files, signals.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/listening_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
    // The signal comes as soon as it listens, or after 30 s.
    const Outcome outcome = Execute(absl::StrCat(
        "{ ", kProgram, kModel, "--port-file=", port_file, " & for i in $(seq 600); do [ -s ",
        port_file, " ] && break; sleep 0.05; done; kill -", signal, " $!; wait $!; }"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("model bard"), HasSubstr("listening on 127.0.0.1:"),
                                      HasSubstr("drained")));
    std::ifstream file(port_file);
    std::string address;
    std::getline(file, address);
    EXPECT_THAT(address, ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]+"));
  }
}

// A pipe into which nothing more fits.
int FullPipe(int* read_end) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const std::string page(4096, 'x');
  while (write(ends[1], page.data(), page.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  *read_end = ends[0];
  return ends[1];
}

// Nobody reads, the reader has gone, the disk is full: it serves and ends as ever.
TEST(CoordinatorTest, ItDoesNotDependOnItsLog) {
  const std::string port_file = absl::StrCat(::testing::TempDir(), "/address");
  for (const char* log : {"an unread pipe", "a closed pipe", "/dev/full"}) {
    SCOPED_TRACE(log);
    std::remove(port_file.c_str());
    int read_end = -1;
    const int out = *log == '/' ? open(log, O_WRONLY | O_CLOEXEC) : FullPipe(&read_end);
    if (*log == 'a' && log[2] == 'c') close(std::exchange(read_end, -1));
    const std::string flag = absl::StrCat("--port-file=", port_file);
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(out, STDERR_FILENO);
      dup2(out, STDOUT_FILENO);
      execl("coordinator/coordinator", "coordinator", "--model=checkpoints/bard",
            "--listen=127.0.0.1:0", flag.c_str(), "--log-level=debug", nullptr);
      _exit(127);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!fs::exists(port_file) && std::chrono::steady_clock::now() < until) usleep(10'000);
    EXPECT_TRUE(fs::exists(port_file));
    kill(pid, SIGTERM);
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 &&
           std::chrono::steady_clock::now() < until) {
      usleep(10'000);
    }
    EXPECT_EQ(ended, pid);
    if (ended == 0) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
    }
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    close(out);
    if (read_end >= 0) close(read_end);
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
      {"--model=checkpoints/bard --drain-timeout=soon", 2, "--drain-timeout: must be a duration"},
      {"--model=checkpoints/bard --log-level=loud", 2, "--log-level: must be trace, "},
      {"--model=checkpoints/bard --nonsense", 2, "--nonsense"},
      {"--model=checkpoints/none --layout=tp=x", 2, "--layout: layout \"tp=x\""},
      {"--model=checkpoints/none --kv-memory=lots", 2, "--kv-memory: KV memory \"lots\""},
      {"--model=checkpoints/none --kv-memory=1.5", 2, "--kv-memory: KV memory \"1.5\""},
      {"--model=checkpoints/none --kv-dtype=f64", 2, "--kv-dtype: KV dtype \"f64\""},
      {"--model=checkpoints/none --swap-memory=0.5", 2, "--swap-memory: swap memory \"0.5\""},
      {"--model=checkpoints/none --max-num-batched-tokens=-1", 2,
       "--max-num-batched-tokens: must be a whole number"},
      {"--model=checkpoints/none --max-queue=-1", 2,
       "--max-queue: must be a whole number of at least 0, not '-1'"},
      {"--model=checkpoints/none --max-num-seqs=5000", 2, "in [0, 4096], not '5000'"},
      {"--model=checkpoints/none --heartbeat-timeout=0.5s", 2, "in [1s, "},
      {"--model=checkpoints/none --max-num-batched-tokens=3 --max-num-seqs=4", 2,
       "--max-num-batched-tokens: 3 is less than --max-num-seqs, 4"},
      // Good ones: it goes on, to the model.
      {"--model=checkpoints/none --kv-memory=0.5 --kv-dtype=int8 --swap-memory=1GiB "
       "--max-num-batched-tokens=256 --listen=127.0.0.1:0",
       1, "checkpoints/none"},
      {"--model=checkpoints/none --listen=here", 2, "--listen: 'here'"},
      {"--model=checkpoints/none --listen=", 2, "--listen: ''"},
      {"--model= --listen=127.0.0.1:0", 2, "--model: must not be empty"},
      {"--model=checkpoints/none --port-file=", 2, "--port-file: must not be empty"},
      {"--model=checkpoints/bard --listen=127.0.0.1:0 --context-length=4096", 1,
       "4096 is not in [2, 1024]"},
      {"--model=checkpoints/none --listen=127.0.0.1:0", 1, "--model: checkpoints/none"},
      {"--model=synthetic:llama3-1b --listen=127.0.0.1:0", 1,
       "--model: 'synthetic:llama3-1b' has no tokenizer"},
      // Before the model, which is not there.
      {"--model=checkpoints/none --listen=127.0.0.1:0 --port-file=/nowhere/file", 1,
       "--port-file: cannot write '/nowhere/file': No such file or directory"},
      {"--model=checkpoints/none --listen=127.0.0.1:0 --port-file=/tmp", 1,
       "--port-file: cannot write '/tmp': Is a directory"},
      {"--model=checkpoints/none --insecure --listen=192.0.2.1:7", 1,
       "--listen: cannot listen on 192.0.2.1:7"},
      {"--model=checkpoints/none --listen=127.0.0.1:0 --metrics=192.0.2.1:7", 1,
       "coordinator | --metrics: "},
      {"--model=checkpoints/none --metrics=127.0.0.1:0 --metrics-port-file=/nowhere/file", 1,
       "--metrics-port-file: cannot write"},
      {"--model=checkpoints/none --metrics-port-file=/tmp/file", 2,
       "--metrics-port-file requires --metrics"},
      {"--model=checkpoints/none --listen=127.0.0.1:0 --http=127.0.0.1:0 --api-keys=/nowhere/keys",
       1, "/nowhere/keys: No such file or directory"},
      {"--model=checkpoints/none --http=127.0.0.1:0 --usage-db=usage", 2,
       "--usage-db requires --api-keys"},
      {"--model=checkpoints/none --http=[::]:0", 2, "--http: [::]:0 is not loopback"},
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

// bard, with one file replaced.
class BadFolder {
 public:
  explicit BadFolder(const std::string& file)
      : path_(fs::path(::testing::TempDir()) / "bad"), file_(path_ / file) {
    fs::create_directory(path_);
    for (const auto& entry : fs::directory_iterator("checkpoints/bard")) {
      fs::create_symlink(fs::canonical(entry.path()), path_ / entry.path().filename());
    }
    fs::remove(file_);
  }
  ~BadFolder() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }
  const fs::path& file() const { return file_; }

 private:
  const fs::path path_;
  const fs::path file_;
};

TEST(CoordinatorTest, FilesThatDoNotEndAreRefusedAtOnce) {
  const struct {
    const char* says;
    std::function<void(const fs::path&)> make;
  } kinds[] = {
      {": not a regular file, but a pipe",
       [](const fs::path& file) { EXPECT_EQ(mkfifo(file.c_str(), 0600), 0); }},
      {": not a regular file, but a device",
       [](const fs::path& file) { fs::create_symlink("/dev/zero", file); }},
      {": 21474836480 bytes is more than the ",
       [](const fs::path& file) {
         std::ofstream(file).close();
         fs::resize_file(file, int64_t{20} << 30);
       }},
  };
  for (const char* name :
       {"tokenizer.json", "config.json", "generation_config.json", "model.safetensors"}) {
    for (const auto& [says, make] : kinds) {
      const BadFolder folder(name);
      make(folder.file());
      const std::string file = folder.file().string();
      const Outcome outcome = Execute(absl::StrCat(
          "timeout 20 ", kProgram, "--model=", folder.path().string(), " --listen=127.0.0.1:0"));
      EXPECT_EQ(outcome.exit_code, 1) << file << says << outcome.output;  // 124: it hung
      // Weights may have 20 GiB, but not of zeros.
      const bool weights =
          absl::StrContains(file, "safetensors") && absl::StrContains(says, "byte");
      EXPECT_THAT(outcome.output,
                  HasSubstr(absl::StrCat("--model: ", file, weights ? ": the header" : says)));
    }
  }
}

TEST(CoordinatorTest, APortInUseIsNamedBeforeTheModelIsLoaded) {
  const ListeningSocket listener;
  const std::string address = absl::StrCat("127.0.0.1:", listener.port());
  const Outcome outcome =
      Execute(absl::StrCat(kProgram, "--model=checkpoints/none --listen=", address));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr(address), HasSubstr("the port is in use"),
                                    Not(HasSubstr("checkpoints"))));
}

}  // namespace
}  // namespace skein::coordinator
