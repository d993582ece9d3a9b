// The skein program against a coordinator in the test's process.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using coordinator::FakeJob;
using coordinator::NewRequest;
using coordinator::SequenceOutput;
using coordinator::TestCoordinator;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Outcome Skein(const std::string& arguments) {
  const std::string err = absl::StrCat(::testing::TempDir(), "/stderr");
  FILE* pipe = popen(absl::StrCat("coordinator/client/skein ", arguments, " 2>", err).c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.out.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream file(err);
  outcome.err.assign(std::istreambuf_iterator<char>(file), {});
  return outcome;
}

class SkeinTest : public ::testing::Test {
 protected:
  std::string At() const { return absl::StrCat(" --coordinator ", coordinator_.address(), " "); }

  // A job that answers with the prompt, or holds on to prompts "hold".
  std::unique_ptr<FakeJob> Serve() {
    auto job = std::make_unique<FakeJob>(coordinator::FakeJobOptions{
        .coordinator = coordinator_.address(), .script = [](const NewRequest& request) {
          const std::string prompt(request.prompt.begin(), request.prompt.end());
          std::vector<SequenceOutput> outputs;
          if (prompt != "hold") outputs.push_back(coordinator::TextOutput(request.id, prompt));
          return outputs;
        }});
    EXPECT_TRUE(coordinator_.WaitUntilServing());
    return job;
  }

  TestCoordinator coordinator_;
};

TEST_F(SkeinTest, GenerateStreamsTextAndStatistics) {
  const auto job = Serve();
  const Outcome outcome = Skein("generate --prompt 'two words' --seed 7" + At());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "two words\n");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("prompt 9 tokens, answer 9 tokens"), HasSubstr("seed 7"),
                                 HasSubstr("end: max tokens")));
}

TEST_F(SkeinTest, PromptsComeFromFilesToo) {
  const auto job = Serve();
  const std::string path = absl::StrCat(::testing::TempDir(), "/prompt");
  std::ofstream(path) << "from a file\n";
  EXPECT_EQ(Skein(absl::StrCat("generate --prompt-file ", path, At())).out, "from a file\n");
  EXPECT_EQ(Skein(absl::StrCat("generate --prompt-file - ", At(), " <", path)).out,
            "from a file\n");
  const Outcome missing = Skein("generate --prompt-file /nowhere" + At());
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere"));
}

TEST_F(SkeinTest, JsonHasEveryEvent) {
  const auto job = Serve();
  const Outcome outcome = Skein("generate --prompt abc --json --stop c --stop z" + At());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("{\"accepted\":"), HasSubstr("\"text\":\"ab\""),
                                 HasSubstr("\"reason\":\"REASON_STOP\"")));
}

TEST_F(SkeinTest, ErrorsAreExplained) {
  const Outcome idle = Skein("generate --prompt x --wait 0s" + At());
  EXPECT_EQ(idle.exit_code, 1);
  EXPECT_THAT(idle.err, HasSubstr("UNAVAILABLE: no replica serves"));
  const auto job = Serve();
  const Outcome invalid = Skein("generate --prompt x --temperature nan" + At());
  EXPECT_EQ(invalid.exit_code, 1);
  EXPECT_THAT(invalid.err, HasSubstr("INVALID_ARGUMENT: sampling.temperature: nan"));
  const Outcome late = Skein("generate --prompt hold --timeout 300ms" + At());
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, HasSubstr("DEADLINE_EXCEEDED"));
  const Outcome nobody = Skein("generate --prompt x --wait 0s --coordinator 127.0.0.1:1");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, AllOf(HasSubstr("no coordinator answers at 127.0.0.1:1"),
                                HasSubstr("coordinator --model")));
}

TEST_F(SkeinTest, GenerateWaitsForAReplica) {
  std::unique_ptr<FakeJob> job;
  std::thread later([&] {
    absl::SleepFor(absl::Milliseconds(500));
    job = Serve();
  });
  const Outcome outcome = Skein("generate --prompt abc --wait 20s" + At());
  later.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "abc\n");
  EXPECT_THAT(outcome.err, HasSubstr("waiting up to 20s"));
}

TEST_F(SkeinTest, AnInterruptCancelsTheRequest) {
  const auto job = Serve();
  // timeout signals what it starts, here skein by way of the shell's exec.
  const std::string path = absl::StrCat(::testing::TempDir(), "/interrupt.sh");
  std::ofstream(path) << "exec timeout --preserve-status -s INT 1 coordinator/client/skein \"$@\"";
  const std::string command =
      absl::StrCat("/bin/bash ", path, " generate --prompt hold", At(), " 2>/dev/null");
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(
      TestCoordinator::WaitFor([&] { return coordinator_.Status().running_requests() == 0; }));
}

TEST_F(SkeinTest, StatusWaitsAndShowsPlanAndRanks) {
  const Outcome empty = Skein("status" + At());
  EXPECT_EQ(empty.exit_code, 0);
  EXPECT_THAT(empty.out, HasSubstr("not serving"));
  const Outcome waited = Skein("status --wait 100ms" + At());
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_THAT(waited.err, HasSubstr("no replica serves after 100ms"));
  const auto job = Serve();
  const Outcome status = Skein("status --wait 20s" + At());
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(status.out, AllOf(HasSubstr("model fake: serving"), HasSubstr("job job: serving"),
                                HasSubstr("host0"), HasSubstr("tokens/s")));
  EXPECT_THAT(Skein("status --json" + At()).out, HasSubstr("\"serving\":true"));
  EXPECT_THAT(Skein("models" + At()).out, HasSubstr("fake: LlamaForCausalLM"));
}

TEST(SkeinUsageTest, WrongUsageIsExitCode2AndHelpIs0) {
  for (const char* wrong : {"", "nonsense", "generate", "generate --prompt a --prompt-file b",
                            "status --wait soon", "generate --prompt a --max-tokens x"}) {
    EXPECT_EQ(Skein(wrong).exit_code, 2) << wrong;
  }
  for (const char* help : {"--help", "generate --help", "status --help", "--version"}) {
    EXPECT_EQ(Skein(help).exit_code, 0) << help;
  }
  EXPECT_THAT(Skein("--help").out, HasSubstr("bench"));
}

TEST(SkeinUsageTest, BenchStartsTheWorkerWithTheOtherFlags) {
  EXPECT_EQ(Skein("bench --worker /bin/echo --model=synthetic:llama3-1b --threads 2 --help").out,
            "bench --model=synthetic:llama3-1b --threads 2 --help\n");
  const Outcome missing = Skein("bench --worker /nowhere/worker");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/worker"));
}

}  // namespace
}  // namespace skein::client
