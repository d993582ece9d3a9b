// Flags of `skein bench scale`: what they change in the commands that it runs, and in its report.
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/flags/ask.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using nlohmann::json;

// A worker that measures nothing: a host of 4 cores, and steps of 1 s, 2 s of two stages or 3 s of
// two replicas.
std::string FakeWorker() {
  const std::string path = NewPath("worker");
  std::ofstream(path) << R"(#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
if [ "$1" = probe ]; then
  echo '{"hosts": [{"name": "fake", "cores": 4, "memory_bytes": 1e11}]}'
  exit
fi
seconds=1
for flag; do
  case $flag in
    --batch=*) batches=$(echo "${flag#--batch=}" | tr , ' ') ;;
    --layout=*pp=2,*) seconds=2 ;;
    --layout=*dp=2) seconds=3 ;;
  esac
done
echo "a library's {remark}"
rows=
for batch in ${batches:-1}; do rows="$rows{\"seconds\": $seconds},"; done
printf '{\n"rows": [%s]\n}\n' "${rows%,}"
echo "{}, says MPI, and ends"
)";
  chmod(path.c_str(), 0755);
  return path;
}

// With settings for mpirun.
Outcome Scale(const std::string& flags) {
  const std::string folder = NewPath("m");
  mkdir(folder.c_str(), 0755);
  return Run("sh",
             absl::StrCat("-c '. scripts/env.sh; exec \"$@\"' - ", kSkein, " bench scale ", flags),
             {{"TMPDIR", folder}, {"HOME", folder}});
}

// By the fake worker.
Outcome Faked(const std::string& flags, const std::string& model = "checkpoints/bard") {
  Outcome outcome = Scale(absl::StrCat("--model=", model, " --worker=", FakeWorker(), " ", flags));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return outcome;
}

json Report(const std::string& flags, const std::string& model = "checkpoints/bard") {
  const std::string path = NewPath("scaling");
  Faked(absl::StrCat("--json=", path, " ", flags), model);
  return json::parse(ReadFileOrEmpty(path), nullptr, /*allow_exceptions=*/false);
}

void Model() {
  EXPECT_THAT(Faked("--np=1").err, HasSubstr(" --model=checkpoints/bard "));
  const Outcome nowhere = Scale("--model=/nowhere");
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, AllOf(HasSubstr("--model: "), HasSubstr("/nowhere")));
}

void Np() {
  // Each number of ranks is measured right behind the probe that predicts it.
  EXPECT_THAT(Faked("--np=1,4").err,
              AllOf(ContainsRegex("mpirun -np 1 .* probe\n(.*\n)*mpirun -np 1 .* bench "
                                  "decode(.|\n)*mpirun -np 4 .* probe\n"),
                    Not(HasSubstr("-np 2"))));
  const json report = Report("");
  EXPECT_EQ(report["runs"].size(), 2);
  EXPECT_EQ(report["runs"][1]["ranks"], 2);
}

void Weak() {
  EXPECT_THAT(Faked("--weak --np=2 --batch=3").err, HasSubstr("--batch=6 "));
  EXPECT_EQ(Report("--weak")["scaling"], "weak");
}

void Strong() {
  EXPECT_THAT(Faked("--strong --np=2 --batch=3").err, HasSubstr("--batch=3 "));
  EXPECT_EQ(Report("--strong")["scaling"], "strong");
  EXPECT_EQ(Scale("--strong --weak").exit_code, 2);
}

int Count(const std::string& text, const std::string& of) {
  int count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

// Of one mpirun, whatever their order.
void Batch() {
  const std::string asked = Faked("--np=1 --batch=5,2,5").err;
  EXPECT_THAT(asked, HasSubstr("--batch=2,5 "));
  EXPECT_EQ(Count(asked, " bench decode "), 1);
  const Outcome many = Scale("--model=checkpoints/bard --weak --np=4 --batch=500");
  EXPECT_EQ(many.exit_code, 1);
  EXPECT_THAT(many.err, StartsWith("skein: --batch, --np: 2000 sequences"));
  const json report = Report("--np=1 --batch=2,5");
  ASSERT_EQ(report["runs"].size(), 2);
  EXPECT_EQ(report["runs"][1]["batch"], 5);
  EXPECT_DOUBLE_EQ(report["runs"][1]["tokens_per_s"].get<double>(), 5);
}

// Of two ranks all three layouts, of which one is chosen.
void All() {
  EXPECT_EQ(Report("--np=2")["runs"].size(), 1);
  EXPECT_EQ(Report("--np=2 --all")["runs"].size(), 2);  // a replica would have no sequence
  const json report = Report("--np=2 --all --batch=2");
  ASSERT_EQ(report["runs"].size(), 3);
  std::set<std::string> layouts;
  for (const json& run : report["runs"]) {
    EXPECT_EQ(run["chosen"].get<bool>(), layouts.empty());
    layouts.insert(run["layout"].get<std::string>());
  }
  EXPECT_THAT(layouts, ElementsAre("tp=1,pp=1,dp=2", "tp=1,pp=2,dp=1", "tp=2,pp=1,dp=1"));
  EXPECT_THAT(Faked("--np=2 --all --batch=2").out,
              HasSubstr("2 ranks, batch 2: tp=1,pp=1,dp=2 is chosen, and takes 200.0% longer than "
                        "tp=2,pp=1,dp=1\n"));
}

// By turns: each layout's times are 9, 1 and 2 s.
void Rounds() {
  const std::string worker = NewPath("worker");
  std::ofstream(worker) << "#!/bin/sh\nif [ \"$1\" = probe ]; then exec " << FakeWorker()
                        << " probe; fi\n[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || exit 0\n"
                        << "file=$0.$(echo \"$@\" | tr -dc 0-9)\necho >> $file\n"
                        << "set -- 9 1 2\nshift $(($(wc -l < $file) - 1))\n"
                        << "printf '{\n\"rows\": [{\"seconds\": %s}]\n}\n' $1\n";
  chmod(worker.c_str(), 0755);
  const std::string path = NewPath("scaling");
  const Outcome outcome = Scale(
      absl::StrCat("--model=checkpoints/bard --np=2 --all --batch=2 --rounds=3 --worker=", worker,
                   " --json=", path));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  const json report = json::parse(ReadFileOrEmpty(path), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(report["rounds"], 3);
  for (const json& run : report["runs"]) EXPECT_EQ(run["measured_ms"], 2000) << run["layout"];
  EXPECT_EQ(Count(outcome.err, " bench decode "), 9);
  EXPECT_EQ(Count(outcome.err, " probe\n"), 9);
  EXPECT_THAT(outcome.err, ContainsRegex("--layout=tp=2(.|\n)*dp=2(.|\n)*--layout=tp=2"));
  EXPECT_EQ(Count(Faked("--np=2 --all --batch=2").err, " bench decode "), 3);
}

// A host that is measured anew in each round, and for each layout, and is so many times as fast in
// turn.
void RoundsPredict() {
  const auto runs = [](const std::string& speeds, const std::string& flags) {
    const std::string worker = NewPath("worker");
    std::ofstream(worker) << "#!/bin/sh\nif [ \"$1\" != probe ]; then exec " << FakeWorker()
                          << " \"$@\"; fi\n[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || exit 0\n"
                          << "echo >> $0.count\nset -- " << speeds
                          << "\nshift $(($(wc -l < $0.count) - 1))\n"
                          << R"(cat << END
{"hosts": [{"name": "fake", "cores": 4, "memory_bytes": 1e11,
 "links": [{"path": "X", "latency_us": 1, "bytes_per_s": 1e10}],
 "core_rates": {"origin": "measured",
  "reads": [{"working_set_bytes": 1e9, "alone_bytes_per_s": ${1}e9, "together_bytes_per_s": ${1}e9}],
  "products": [{"dtype": "BF16", "rows": 1, "operations_per_s": 1e15}]}}]}
END
)";
    chmod(worker.c_str(), 0755);
    const std::string path = NewPath("scaling");
    const Outcome outcome = Scale(
        absl::StrCat("--model=checkpoints/bard --worker=", worker, " --json=", path, " ", flags));
    EXPECT_TRUE(outcome.ok()) << outcome.err;
    const json report = json::parse(ReadFileOrEmpty(path), nullptr, /*allow_exceptions=*/false);
    std::map<std::string, double> predicted;  // by layout, in ms
    for (const json& run : report["runs"]) predicted[run["layout"]] = run["predicted_ms"];
    return predicted;
  };
  const std::string alone = "tp=1,pp=1,dp=1";
  const double median = runs("1 4 2", "--np=1 --rounds=3")[alone];
  EXPECT_DOUBLE_EQ(median, runs("2", "--np=1")[alone]);
  EXPECT_LT(median, 0.6 * runs("1", "--np=1")[alone]);
  // Each layout is predicted by what is measured right before it.
  const std::string all = "--np=2 --all --batch=2";
  auto in_turn = runs("1 4 2", all), fast = runs("4 4 4", all), less = runs("2 2 2", all);
  ASSERT_EQ(in_turn.size(), 3);
  EXPECT_DOUBLE_EQ(in_turn["tp=2,pp=1,dp=1"], runs("1 1 1", all)["tp=2,pp=1,dp=1"]);
  EXPECT_DOUBLE_EQ(in_turn["tp=1,pp=2,dp=1"], fast["tp=1,pp=2,dp=1"]);
  EXPECT_DOUBLE_EQ(in_turn["tp=1,pp=1,dp=2"], less["tp=1,pp=1,dp=2"]);
}

// One for each layout of one replica, of a size that is not a step's.
void Prefill() {
  const std::string asked = Faked("--np=2 --all --prefill --prompt-tokens=77").err;
  EXPECT_THAT(asked,
              ContainsRegex(" bench prefill --model=checkpoints/bard --layout=tp=2,pp=1,dp=1 "
                            "--prompt-tokens=77 --json=- "));
  EXPECT_EQ(Count(asked, " bench prefill "), 2);
  EXPECT_THAT(Faked("--np=2").err, Not(HasSubstr("prefill")));
  const json report = Report("--np=2 --all --prefill --prompt-tokens=512", "synthetic:llama3-8b");
  ASSERT_EQ(report["prompts"].size(), 2);
  EXPECT_EQ(report["prompts"][0]["layout"], report["runs"][0]["layout"]);
  EXPECT_EQ(report["prompts"][0]["measured_ms"].get<double>(), 1000);
  // Of many rows at once: far less than a step each.
  const double prompt = report["prompts"][0]["predicted_ms"].get<double>();
  const double step = report["runs"][0]["predicted_ms"].get<double>();
  EXPECT_GT(prompt, 2 * step);
  EXPECT_LT(prompt, 200 * step);
}

void PromptTokens() {
  EXPECT_THAT(Scale("--model=checkpoints/bard --prompt-tokens=9000").err,
              StartsWith("skein: --prompt-tokens, --decode-tokens: 9065 tokens"));
  EXPECT_THAT(Faked("--np=1 --prompt-tokens=77").err, HasSubstr(" --prompt-tokens=77 "));
  // Longer contexts take longer.
  const auto predicted = [](const std::string& flags) {
    const json report = Report("--np=1 --batch=16 " + flags, "synthetic:llama3-8b");
    return report["runs"][0]["predicted_ms"].get<double>();
  };
  EXPECT_GT(predicted("--prompt-tokens=8000"), 1.05 * predicted("--prompt-tokens=8"));
}

void DecodeTokens() {
  EXPECT_THAT(Faked("--np=1 --decode-tokens=9").err, HasSubstr(" --decode-tokens=9 "));
  EXPECT_EQ(Report("--decode-tokens=9")["steps"], 9);
}

void Mpirun() {
  EXPECT_THAT(Faked("--np=1 '--mpirun=--map-by slot  -x PRESENT=1'").err,
              HasSubstr("mpirun --map-by slot -x PRESENT=1 -np 1 "));
}

// Whatever bard's prediction is, it is not a second.
void MaxError() {
  const std::string line =
      absl::StrCat("--model=checkpoints/bard --np=1 --worker=", FakeWorker(), " --max-error=");
  EXPECT_EQ(Scale(line + "100").exit_code, 0);
  const Outcome off = Scale(line + "5");
  EXPECT_EQ(off.exit_code, 1);
  EXPECT_THAT(off.err, ContainsRegex("--max-error: a step was predicted with an error of [0-9]"));
}

void Worker() {
  EXPECT_THAT(Scale("--worker=/nowhere/worker").err, HasSubstr("/nowhere/worker"));
  // Also in front of `scale`, as for what the worker's bench does.
  EXPECT_THAT(Run(kSkein, "bench --worker=/nowhere/worker scale").err,
              HasSubstr("/nowhere/worker"));
  const Outcome failed = Scale("--worker=/bin/false");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("mpirun has ended with status 1, see above; "));
  const std::string rowless = NewPath("worker");
  std::ofstream(rowless) << "#!/bin/sh\nif [ \"$1\" = probe ]; then exec " << FakeWorker()
                         << " probe; fi\nprintf '{\\n\"rows\": [{}]\\n}\\n'\n";
  chmod(rowless.c_str(), 0755);
  EXPECT_THAT(Scale("--model=checkpoints/bard --np=1 --worker=" + rowless).err,
              HasSubstr("did not print the 1 rows"));
  const Outcome silent = Scale("--worker=/bin/true");
  EXPECT_EQ(silent.exit_code, 1);
  EXPECT_THAT(silent.err, HasSubstr("skein: what `worker probe` printed: "));
}

// What was predicted is there when steps are measured, and nothing is lost with a run that fails.
void Json() {
  const std::string path = NewPath("scaling");
  const std::string worker = NewPath("worker");
  std::ofstream(worker) << "#!/bin/sh\nif [ \"$1\" = probe ]; then exec " << FakeWorker()
                        << " probe; fi\ncp " << path << " " << path << ".before\nexit 1\n";
  chmod(worker.c_str(), 0755);
  const Outcome failed =
      Scale(absl::StrCat("--model=checkpoints/bard --np=1 --json=", path, " --worker=", worker));
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, StartsWith("predictions for checkpoints/bard"));
  for (const char* name : {"", ".before"}) {
    const json report =
        json::parse(ReadFileOrEmpty(path + name), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(report.is_object()) << name;
    EXPECT_GT(report["runs"][0]["predicted_ms"].get<double>(), 0) << name;
    EXPECT_TRUE(report["runs"][0]["measured_ms"].is_null()) << name;
  }
  EXPECT_THAT(Scale("--json=/nowhere/scaling").err, HasSubstr("--json: "));
  // What one number of ranks gave is told where the next one fails.
  std::ofstream(worker) << "#!/bin/sh\n[ \"$OMPI_COMM_WORLD_SIZE\" = 1 ] || exit 1\nexec "
                        << FakeWorker() << " \"$@\"\n";
  const Outcome later =
      Scale(absl::StrCat("--model=checkpoints/bard --np=1,2 --json=", path, " --worker=", worker));
  EXPECT_EQ(later.exit_code, 1);
  EXPECT_THAT(later.out,
              ContainsRegex("predicted and measured\n(.*\n)*1 +tp=1,pp=1,dp=1 +1 .* 1.000 s"));
}

void Svg() {
  const std::string path = NewPath("picture");
  Faked(absl::StrCat("--svg=", path));
  EXPECT_THAT(ReadFileOrEmpty(path), AllOf(StartsWith("<svg"), HasSubstr("strong scaling")));
  EXPECT_THAT(Scale("--svg=/nowhere/picture").err, HasSubstr("--svg: "));
}

}  // namespace

FlagCases BenchScaleCases() {
  return {
      HelpCase(kSkein, "bench scale"),
      {{"bench scale", "--model"}, Model},
      {{"bench scale", "--np"}, Np},
      {{"bench scale", "--weak"}, Weak},
      {{"bench scale", "--strong"}, Strong},
      {{"bench scale", "--batch"}, Batch},
      {{"bench scale", "--all"}, All},
      {{"bench scale", "--prefill"}, Prefill},
      {{"bench scale", "--rounds"},
       [] {
         Rounds();
         RoundsPredict();
       }},
      {{"bench scale", "--prompt-tokens"}, PromptTokens},
      {{"bench scale", "--decode-tokens"}, DecodeTokens},
      {{"bench scale", "--mpirun"}, Mpirun},
      {{"bench scale", "--max-error"}, MaxError},
      {{"bench scale", "--worker"}, Worker},
      {{"bench scale", "--json"}, Json},
      {{"bench scale", "--svg"}, Svg},
  };
}

}  // namespace skein::testing
