#include "base/flags/config.h"

#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/flags/flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<int64_t> ParseSize(const std::string& text) {
  if (text == "4KiB") return 4096;
  return absl::InvalidArgumentError(absl::StrCat("must be a size, not '", text, "'"));
}

// A program with a command that passes flags on to it, `ask`, and one that does not, `load`.
struct Program {
  Program() {
    app.name("worker");
    app.add_option("--model", model, "")->required();
    app.add_option("--count", count, "")->check(InRange(1, 9))->capture_default_str();
    app.add_option("--host", hosts, "")->expected(1)->take_all();
    app.add_option("--batch", batches, "")->delimiter(',');
    CLI::Option* const fast = app.add_flag("--fast", is_fast, "");
    app.add_flag("--probe,!--no-probe", probe, "")->default_str("true");
    app.add_option("--port-file", port_file, "")->excludes(fast);
    AddDuration(app, "--wait", wait, "");
    AddAddress(app, "--listen", listen, "");
    AddParsed(app, "--size", size, ParseSize, "");
    ask = app.add_subcommand("ask", "")->fallthrough();
    ask->add_option("TEXT", text, "")->required();
    ask->add_flag_callback("--loud", [this] { loud = true; }, "");
    load = app.add_subcommand("load", "");
    load->add_option("--count", load_count, "")->check(InRange(1, 99))->capture_default_str();
    other = load->add_subcommand("other", "")->allow_extras()->fallthrough(false);
    other->set_help_flag();
  }

  std::optional<int> Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "worker");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const auto code = ParseCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
    return code;
  }

  CLI::App app;
  CLI::App* ask = nullptr;
  CLI::App* load = nullptr;
  CLI::App* other = nullptr;
  std::string model;
  int count = 7;
  std::vector<std::string> hosts;
  std::vector<int> batches;
  bool is_fast = false;
  bool probe = true;
  std::string port_file;
  absl::Duration wait = absl::Seconds(3);
  std::string listen = "127.0.0.1:1";
  int64_t size = 0;
  std::string text;
  bool loud = false;
  int load_count = 1;
  std::string out;
  std::string err;
};

class ConfigTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  // What is said to a file of this text, without the file's name and the hint of --help.
  std::string Error(const std::string& text) {
    Write(text);
    Program program;
    EXPECT_EQ(program.Parse({"--model=m", flag_.c_str()}), kExitUsage);
    return absl::StrReplaceAll(
        program.err, {{path_, "FILE"}, {"\nRun with --help for more information.\n", ""}});
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/", getpid(), ".toml");
  const std::string flag_ = "--config=" + path_;
};

TEST_F(ConfigTest, FileBeatsDefaults) {
  Write(R"(model = a/b
count = 3
host = ["a", "b c"]
batch = 1,2
fast = true
probe = false
wait = 1m30s
listen = [::1]:7
size = "4KiB"
)");
  Program odd;
  EXPECT_EQ(odd.Parse({flag_.c_str()}), kExitUsage);  // [::1]:7 looks like a list
  Write(R"(model = a/b
count = 3
host = ["a", "b c"]
batch = 1,2
fast = true
probe = false
wait = 1m30s
listen = "[::1]:7"
size = "4KiB"
)");
  Program program;
  EXPECT_EQ(program.Parse({flag_.c_str()}), std::nullopt) << program.err;
  EXPECT_EQ(program.model, "a/b");
  EXPECT_EQ(program.count, 3);
  EXPECT_THAT(program.hosts, ElementsAre("a", "b c"));
  EXPECT_THAT(program.batches, ElementsAre(1, 2));
  EXPECT_TRUE(program.is_fast);
  EXPECT_FALSE(program.probe);
  EXPECT_EQ(program.wait, absl::Seconds(90));
  EXPECT_EQ(program.listen, "[::1]:7");
  EXPECT_EQ(program.size, 4096);
}

TEST_F(ConfigTest, CommandLineBeatsFile) {
  Write("model = a\ncount = 3\nhost = [a, b]\nfast = true\nprobe = false\nport-file = f\n");
  Program program;
  EXPECT_EQ(program.Parse(
                {"--count=4", "--host=c", "--fast=false", flag_.c_str(), "--probe", "--model="}),
            kExitUsage);
  Write("model = a\ncount = 3\nhost = [a, b]\nfast = true\nprobe = false\n");
  Program other;
  EXPECT_EQ(
      other.Parse({"--count=4", "--host=c", "--fast=false", flag_.c_str(), "--probe", "--model="}),
      std::nullopt)
      << other.err;
  EXPECT_EQ(other.model, "");
  EXPECT_EQ(other.count, 4);
  EXPECT_THAT(other.hosts, ElementsAre("c"));
  EXPECT_FALSE(other.is_fast);
  EXPECT_TRUE(other.probe);
  EXPECT_TRUE(OnCommandLine(other.app, *other.app.get_option("--model")));
  EXPECT_FALSE(OnCommandLine(other.app, *other.app.get_option("--wait")));
}

TEST_F(ConfigTest, NegatedNamesAreKeysToo) {
  Write("model = a\nno-probe = true\n");
  Program program;
  EXPECT_EQ(program.Parse({flag_.c_str()}), std::nullopt) << program.err;
  EXPECT_FALSE(program.probe);
  EXPECT_FALSE(OnCommandLine(program.app, *program.app.get_option("--probe")));
}

TEST_F(ConfigTest, SectionsAreForProgramsAndCommands) {
  Write(R"([worker]
model = a
[worker.ask]
TEXT = good morrow
loud = true
[load]
count = 99
[coordinator]
port-file = f
unknown = 1
[skein.bench.serve]
rate = 2
)");
  Program ask;
  EXPECT_EQ(ask.Parse({"ask", flag_.c_str()}), std::nullopt) << ask.err;
  EXPECT_EQ(ask.model, "a");
  EXPECT_EQ(ask.text, "good morrow");
  EXPECT_TRUE(ask.loud);
  EXPECT_EQ(ask.load_count, 1);  // it does not run
  EXPECT_EQ(ask.port_file, "");
  Program load;
  EXPECT_EQ(load.Parse({"load", flag_.c_str()}), std::nullopt) << load.err;
  EXPECT_EQ(load.load_count, 99);
  EXPECT_EQ(load.count, 7);
  EXPECT_FALSE(load.loud);

  const auto coordinators = FindConfigFor(load.app, "coordinator");
  ASSERT_TRUE(coordinators.has_value());
  EXPECT_EQ(coordinators->path, path_);
  EXPECT_THAT(coordinators->keys, ElementsAre("port-file", "unknown"));
  EXPECT_EQ(FindConfigFor(load.app, "supervisor"), std::nullopt);
}

TEST_F(ConfigTest, PassesOnWhatAnotherProgramAnswers) {
  Program program;
  EXPECT_EQ(program.Parse({"--model=m", "load", "other", "--config", "f", "--print-config"}),
            std::nullopt)
      << program.err;
  EXPECT_THAT(program.other->remaining(), ElementsAre("--config", "f", "--print-config"));
}

TEST_F(ConfigTest, RequirementsHoldForFiles) {
  Write("count = 3\n");
  Program without;
  EXPECT_EQ(without.Parse({flag_.c_str()}), kExitUsage);
  EXPECT_EQ(without.err, "worker: --model is required\nRun with --help for more information.\n");
  EXPECT_EQ(Error("fast = true\nport-file = f"), "worker: --fast excludes --port-file");
}

TEST_F(ConfigTest, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(Error("\ncount = 10"),
            "worker: FILE, line 2: --count: must be a whole number in [1, 9], not '10'");
  EXPECT_EQ(Error("size = \"\""), "worker: FILE, line 1: --size: must be a size, not ''");
  EXPECT_EQ(Error("fast = 1"), "worker: FILE, line 1: fast: must be true or false, not '1'");
  EXPECT_EQ(Error("fast = [true]"),
            "worker: FILE, line 1: fast: must be true or false, not a list");
  EXPECT_EQ(Error("count = [1]"), "worker: FILE, line 1: count: takes one value, not a list");
  EXPECT_EQ(Error("batch = x"), "worker: FILE, line 1: batch: Could not convert: --batch = x");
  EXPECT_EQ(Error("none = 1"), "worker: FILE, line 1: none: worker has no such flag");
  EXPECT_EQ(Error("[load]\nwait = 1s"), "worker: FILE, line 2: wait: worker load has no such flag");
  EXPECT_EQ(Error("[a]\nwait = 1s"), "worker: FILE, line 2: [a]: worker has no command a");
  EXPECT_EQ(Error("count = 1\n[worker]\ncount = 1"),
            "worker: FILE, line 3: count: line 1 has it, too");
  EXPECT_EQ(Error("count"), "worker: FILE, line 1: expected KEY = VALUE, or [SECTION]");
  for (const char* const key : {"help", "config", "print-config"}) {
    EXPECT_EQ(Error(absl::StrCat(key, " = true")),
              absl::StrCat("worker: FILE, line 1: ", key, ": worker has no such flag"));
  }
  Program program;
  EXPECT_EQ(program.Parse({"--config=/nowhere/f"}), kExitUsage);
  EXPECT_EQ(program.err,
            "worker: --config: cannot read '/nowhere/f': No such file or directory\n"
            "Run with --help for more information.\n");
  Program twice;
  EXPECT_EQ(twice.Parse({flag_.c_str(), "load", flag_.c_str()}), kExitUsage);
  EXPECT_EQ(twice.err,
            "worker: --config: may be given once\nRun with --help for more information.\n");
}

constexpr char kPrinted[] = R"(# `worker --config FILE` reads this.

[worker]
# model =  # default
count = 3  # FILE, line 1
host = ["a", "b\"c"]  # command line
batch = [1, 2]  # FILE, line 2
# fast = false  # default
probe = false  # command line
# port-file =  # default
wait = "1m30s"  # FILE, line 3
# listen = "127.0.0.1:1"  # default
size = "4KiB"  # command line

[worker.load]
count = 98  # FILE, line 5
)";

TEST_F(ConfigTest, PrintsValuesAndOrigins) {
  Write("count = 3\nbatch = [1, 2]\nwait = 1m30s\n[load]\ncount = 98");
  Program program;
  EXPECT_EQ(program.Parse({"--size=4KiB", "--no-probe", "--host=a", "--host=b\"c", "load",
                           "--print-config", flag_.c_str()}),
            kExitOk)
      << program.err;
  EXPECT_EQ(absl::StrReplaceAll(program.out, {{path_, "FILE"}}), kPrinted);
  EXPECT_EQ(program.err, "");

  // What was printed says the same, once more.
  Write(program.out);
  Program again;
  EXPECT_EQ(again.Parse({flag_.c_str(), "--print-config", "load"}), kExitOk) << again.err;
  std::vector<std::string> before = absl::StrSplit(program.out, '\n');
  std::vector<std::string> after = absl::StrSplit(again.out, '\n');
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t end = before[i].rfind("  # ");
    EXPECT_EQ(before[i].substr(0, end), after[i].substr(0, after[i].rfind("  # ")));
    if (!before[i].empty() && before[i][0] != '#' && before[i][0] != '[') {
      EXPECT_EQ(after[i].substr(end), absl::StrCat("  # ", path_, ", line ", i + 1));
    }
  }
}

TEST_F(ConfigTest, PrintsAllCommandsWithoutOne) {
  Write("[ask]\nTEXT = \"x\"\n[load]\ncount = 100");
  Program wrong;
  EXPECT_EQ(wrong.Parse({"--print-config", flag_.c_str()}), kExitUsage);
  Write("[ask]\nTEXT = \"x\"");
  Program program;
  EXPECT_EQ(program.Parse({"--print-config", flag_.c_str()}), kExitOk) << program.err;
  EXPECT_EQ(program.out.substr(program.out.find("\n[worker.ask]")),
            absl::StrCat("\n[worker.ask]\nTEXT = \"x\"  # ", path_,
                         ", line 2\n# loud = false  # default\n\n"
                         "[worker.load]\n# count = 1  # default\n"));
}

TEST_F(ConfigTest, PrintsNothingOfAWrongCommandLine) {
  for (const char* const wrong : {"--count=0", "--unknown"}) {
    Program program;
    EXPECT_EQ(program.Parse({"--print-config", wrong}), kExitUsage);
    EXPECT_EQ(program.out, "");
  }
  Program sub;
  EXPECT_EQ(sub.Parse({"load", "--print-config", "--count=0"}), kExitUsage);
}

}  // namespace
}  // namespace skein
