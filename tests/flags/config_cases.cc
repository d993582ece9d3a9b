// Cases of --config and --print-config, which go through all flags that a program says it has.
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kOnCommandLine[] = "  # command line";

// Each flag takes one of these; the first is of flags that stand alone, the second of those that
// take any text.
constexpr const char* kValues[] = {
    "",    R"(a "b\c #)", "1",   "64",   "0.5",  "1s",   "1MiB",       "127.0.0.1:1",
    "cpu", "tp=1",        "f32", "auto", "info", "keep", "throughput", "mpirun",
    "1=1", "41000-41099", "1-2", "2:1",  "Q8_0", "json"};

// A flag, and what the program prints of it: "max-queue", "1".
struct Given {
  std::string arguments;  // for a shell
  std::string section;
  std::string key;
  std::string value;
  std::string printed;

  std::string line() const { return absl::StrCat(key, " = ", value); }
};

std::vector<std::string> LinesOf(const std::string& text) { return absl::StrSplit(text, '\n'); }

std::string NameOf(const std::string& program) { return program.substr(program.rfind('/') + 1); }

// Without those that are about files themselves.
std::vector<Flag> FlagsInFiles(const std::string& program) {
  std::vector<Flag> flags = FlagsOf(program);
  const std::set<std::string> others = {"--help", "--version", "--config", "--print-config"};
  std::erase_if(flags, [&](const Flag& flag) { return others.contains(flag.name); });
  return flags;
}

std::string Quoted(const std::string& value) {
  if (!value.empty() && value.find_first_not_of("0123456789") == value.npos) return value;
  return absl::StrCat("\"", absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

// known: values by the names of flags, which mean the same in all commands.
Given Give(const std::string& program, const Flag& flag,
           std::map<std::string, std::string>& known) {
  std::vector<std::string> values(std::begin(kValues), std::end(kValues));
  const auto found = known.find(flag.name);
  if (found != known.end()) values.insert(values.begin(), found->second);
  for (const std::string& value : values) {
    const std::string given = value.empty() ? "" : absl::StrCat("='", value, "'");
    Given tried{.arguments = absl::StrCat(flag.command, " ", flag.name, given),
                .section = absl::StrReplaceAll(
                    absl::StrCat(NameOf(program), flag.command.empty() ? "" : " ", flag.command),
                    {{" ", "."}}),
                .key = flag.name.substr(2),
                .value = value.empty() ? "true" : Quoted(value)};
    if (flag.name.starts_with("--no-")) {
      tried.key = flag.name.substr(5);
      tried.value = "false";
    }
    const Outcome outcome = Run(program, absl::StrCat("--print-config ", tried.arguments));
    if (!outcome.ok()) continue;
    tried.printed = outcome.out;
    known[flag.name] = value;
    return tried;
  }
  ADD_FAILURE() << program << " " << flag.command << " " << flag.name
                << ": none of kValues is right for it";
  return {};
}

// Found once, for both cases.
class AllGiven {
 public:
  explicit AllGiven(const std::string& program) : program_(program) {}
  const std::map<Flag, Given>& Get() {
    if (given_.empty()) {
      std::map<std::string, std::string> known;
      for (const Flag& flag : FlagsInFiles(program_)) given_[flag] = Give(program_, flag, known);
    }
    return given_;
  }

 private:
  const std::string program_;
  std::map<Flag, Given> given_;
};

// The value is printed where it belongs, and is alone in coming from the command line; what was
// printed, given as a file, is printed again.
void ComesBack(const std::string& program, const Flag& flag, const Given& given) {
  std::string section;
  std::vector<std::string> found;
  std::vector<std::string> wanted = LinesOf(given.printed);
  const std::string path = NewPath("printed");
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].starts_with("[")) section = wanted[i];
    if (!wanted[i].ends_with(kOnCommandLine)) continue;
    found.push_back(absl::StrCat(section, " ", wanted[i]));
    wanted[i] = absl::StrReplaceAll(
        wanted[i], {{kOnCommandLine, absl::StrCat("  # ", path, ", line ", i + 1)}});
  }
  EXPECT_EQ(absl::StrJoin(found, "\n"),
            absl::StrCat("[", given.section, "] ", given.line(), kOnCommandLine));
  std::ofstream(path) << given.printed;
  const Outcome again =
      Run(program, absl::StrCat("--config=", path, " --print-config ", flag.command));
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(again.out, absl::StrJoin(wanted, "\n"));
}

void PrintConfig(const std::string& program, AllGiven& all) {
  for (const auto& [flag, given] : all.Get()) {
    SCOPED_TRACE(absl::StrCat(program, " ", flag.command, " ", flag.name));
    ComesBack(program, flag, given);
  }
}

// A file has every flag of the program, and a section of another program.
void Config(const std::string& program, AllGiven& all) {
  const std::string path = NewPath("config");
  std::vector<std::string> lines = {NameOf(program) == "worker" ? "[skein]" : "[worker]",
                                    "no-such = 1"};
  std::vector<std::string> wanted;
  for (const auto& [flag, given] : all.Get()) {
    if (flag.name.starts_with("--no-")) continue;
    lines.push_back(absl::StrCat("[", given.section, "]"));
    lines.push_back(given.line());
    wanted.push_back(absl::StrCat(given.line(), "  # ", path, ", line ", lines.size()));
  }
  std::ofstream(path) << absl::StrJoin(lines, "\n");
  const Outcome outcome = Run(program, absl::StrCat("--print-config --config ", path));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<std::string> found = LinesOf(outcome.out);
  std::erase_if(found, [](const std::string& line) { return line.find(", line ") == line.npos; });
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(wanted));

  // A run, too, takes it.
  std::ofstream(path) << "# nothing\n[" << NameOf(program) << "]\nno-such = 1\n";
  const Outcome wrong = Run(program, absl::StrCat("--config ", path));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr(absl::StrCat(NameOf(program), ": ", path, ", line 3: no-such: ",
                                                NameOf(program), " has no such flag\n")));
}

}  // namespace

FlagCases ConfigCases(const std::string& program) {
  const auto all = std::make_shared<AllGiven>(program);
  return {{{"", "--config"}, [=] { Config(program, *all); }},
          {{"", "--print-config"}, [=] { PrintConfig(program, *all); }}};
}

}  // namespace skein::testing
