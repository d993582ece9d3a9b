// Flags of `skein serve`: what they change in what it starts.
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/skein_cases.h"
#include "tests/flags/tls_files.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(60);

// What it has said when it serves.
std::string Served(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {kSkein, "serve", "checkpoints/bard"});
  Process serve({.name = "serve", .argv = flags});
  EXPECT_TRUE(serve.WaitForOutput("Ctrl-C ends it.", kPatience)) << serve.Output();
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(kPatience), 0);
  return serve.Output();
}
std::string ServedOnFreePorts(const std::string& flag) {
  return Served({"--http=127.0.0.1:0", "--listen=127.0.0.1:0", flag});
}

void Ranks() { EXPECT_THAT(ServedOnFreePorts("--np=3"), HasSubstr(" on 3 ranks")); }
void Jobs() {
  EXPECT_THAT(Served({"--http=127.0.0.1:0", "--listen=127.0.0.1:0", "--jobs=2", "--verbose"}),
              HasSubstr("job 2 starts"));
}
// On an address of loopback that is nobody's.
void Http() {
  EXPECT_THAT(Served({"--http=127.0.0.9:0", "--listen=127.0.0.1:0"}),
              HasSubstr("served at http://127.0.0.9:"));
}
void Listen() {
  EXPECT_THAT(Served({"--http=127.0.0.1:0", "--listen=127.0.0.9:0"}),
              HasSubstr("gRPC on 127.0.0.9:"));
}
// All that is started has them: it would not serve else.
void Tls() {
  const TlsFiles files;
  std::vector<std::string> flags = {"--http=127.0.0.1:0", "--listen=127.0.0.1:0", "--verbose"};
  for (const std::string& flag : TlsFlags(files.good())) flags.push_back(flag);
  const std::string said = Served(flags);
  EXPECT_THAT(said, HasSubstr(" with TLS; waiting for workers"));
  EXPECT_THAT(said, Not(HasSubstr("a connection was refused")));
}
void Verbose() {
  EXPECT_THAT(ServedOnFreePorts("--verbose"), HasSubstr("coordinator | listening on"));
  EXPECT_THAT(ServedOnFreePorts("--np=1"), Not(HasSubstr("coordinator | listening on")));
}

// One file for what it starts, too.
void Config() {
  const std::string path = NewPath("config");
  std::ofstream(path) << "[skein.serve]\nMODEL = checkpoints/bard\nnp = 2\nhttp = 127.0.0.1:0\n"
                         "listen = 127.0.0.1:0\n[coordinator]\nlog-level = info\n"
                         "[worker]\nlog-level = info\n";
  Process serve({.name = "serve", .argv = {kSkein, "serve", "--config=" + path}});
  EXPECT_TRUE(serve.WaitForOutput("Ctrl-C ends it.", kPatience)) << serve.Output();
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(kPatience), 0);
  EXPECT_THAT(serve.Output(), HasSubstr(" on 2 ranks"));
  EXPECT_THAT(serve.Output(), HasSubstr("coordinator | listening on"));
  EXPECT_THAT(serve.Output(), HasSubstr("rank 1 | loaded"));
}

}  // namespace

void RegisterServeTests() { RegisterTest("skein_serve", "Config", Config); }

FlagCases ServeCases() {
  const std::function<void()> tls = RunOnce(Tls);
  return {HelpCase(kSkein, "serve"),       {{"serve", "--np"}, Ranks},
          {{"serve", "--jobs"}, Jobs},     {{"serve", "--http"}, Http},
          {{"serve", "--listen"}, Listen}, {{"serve", "--verbose"}, Verbose},
          {{"serve", "--tls-cert"}, tls},  {{"serve", "--tls-key"}, tls},
          {{"serve", "--tls-ca"}, tls}};
}

}  // namespace skein::testing
