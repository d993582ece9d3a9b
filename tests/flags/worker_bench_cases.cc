// The flags of `worker bench`.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/worker_cases.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using nlohmann::json;

void BenchProfile(const std::string& command) {
  const Outcome outcome = Run(kWorker, "bench " + command + " --device=cpu --profile=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--profile marks the kernels of GPUs"));
}

// That GPUs compute so is cuda_deterministic_test's.
void BenchDeterministic(const std::string& command) {
  const Outcome outcome = Run(kWorker, "bench " + command + " --device=cpu --deterministic");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--deterministic is for GPUs"));
}

// What GPUs do with it is persistent_step_test's.
void BenchDecodeForm(const std::string& command) {
  const std::string bench = "bench " + command + " --device=cpu ";
  EXPECT_THAT(Run(kWorker, bench + "--decode=fast").err,
              HasSubstr("--decode: must be auto, graph or persistent, not 'fast'"));
  for (const std::string form : {"graph", "persistent"}) {
    const Outcome outcome = Run(kWorker, bench + "--decode=" + form);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err,
                HasSubstr("--decode=" + form + " is for GPUs, and this computes on a CPU"));
  }
}

constexpr char kSmall[] = " --model=checkpoints/bard --prompt-tokens=8 ";

// A command of `worker bench`, made small.
Outcome Bench(const std::string& command, const std::string& flags) {
  return Run(kWorker, absl::StrCat("bench ", command, kSmall, flags));
}

// What it writes into the file that --json names.
json BenchJson(const std::string& arguments) {
  const std::string file = NewPath("bench.json");
  const Outcome outcome = Run(kWorker, absl::StrCat("bench ", arguments, " --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
}

void BenchDevice(const std::string& command) {
  for (const auto& [fake, says] : kNoGpu) {
    EXPECT_THAT(Said(Run(WorkerWith(fake), command + " --device=cuda")),
                AllOf(HasSubstr("status 1\n"), HasSubstr(says)));
    EXPECT_THAT(Said(Run(WorkerWith(fake), command)),
                AllOf(HasSubstr("status 0\n"), HasSubstr("no GPU: "), HasSubstr(says)));
  }
  EXPECT_THAT(Said(Run(WorkerWith("library"), command)),
              AllOf(HasSubstr("status 1\n"), HasSubstr("fake GPU 0 has no kernels")));
  EXPECT_THAT(Said(Run(WorkerWith("library"), command + " --device=cpu")),
              AllOf(HasSubstr("status 0\n"), Not(HasSubstr("GPU"))));
}

void BenchJsonFile(const std::string& arguments, const std::string& row) {
  const json report = BenchJson(arguments);
  ASSERT_TRUE(report.is_object());
  ASSERT_FALSE(report["rows"].empty());
  EXPECT_THAT(report["rows"][0]["name"], HasSubstr(row));
  const Outcome nowhere =
      Run(kWorker, absl::StrCat("bench ", arguments, " --json=/nowhere/bench.json"));
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("--json: "));
  EXPECT_THAT(nowhere.out, Not(HasSubstr(row)));  // told before anything is measured
}

void BenchModel(const std::string& command) {
  EXPECT_THAT(Bench(command, "").out, HasSubstr("weights of 13.0 MiB"));
  EXPECT_THAT(Run(kWorker, absl::StrCat("bench ", command, " --model=/nowhere")).err,
              HasSubstr("/nowhere"));
}

// Each of its parts that compute has so many more.
void BenchThreads(const std::string& arguments) {
  const auto most = [&](int threads) {
    return MostThreads(kWorker, absl::StrCat("bench ", arguments, " --threads=", threads));
  };
  EXPECT_GE(most(9) - most(2), 7);
}

// All of the ceiling is more than there is; to steps of a small model caches may give more. Where
// other work of the machine lowers the ceiling alone, it is measured again.
void BenchMinFraction(const std::string& command) {
  EXPECT_TRUE(Bench(command, "").ok());
  const char* const flags = command == "prefill" ? "--prompt-tokens=256" : "--prompt-tokens=8";
  Outcome outcome;
  for (int run = 0; run < 3 && outcome.exit_code != 1; ++run) {
    outcome = Run(kWorker, absl::StrCat("bench ", command, " --model=checkpoints/bard ", flags,
                                        " --min-fraction=1"));
  }
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AnyOf(HasSubstr("may stay in a cache"), HasSubstr("asked were 100%")));
}

void BenchBatch() {
  const json rows = BenchJson(absl::StrCat("decode", kSmall, "--batch=1,64"))["rows"];
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[1]["batch"], 64);
  // 63 sequences more, with the keys and values of the mean context, in 8 layers: 2 KV heads of 64
  // floats each.
  const double context = 8 + 1 + 15 / 2.0;
  EXPECT_EQ(double{rows[1]["bytes"]} - double{rows[0]["bytes"]}, 63 * context * 8 * 2 * 2 * 64 * 4);
}

void BenchPromptTokens() {
  const Outcome outcome =
      Run(kWorker, "bench decode --model=checkpoints/bard --prompt-tokens=1020");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("1037 tokens exceed the model's context of 1024"));
  // Random weights have as long a context as is asked for.
  const json rows = BenchJson(
      "decode --model=synthetic:tiny --prompt-tokens=8200 --decode-tokens=4 --device=cpu")["rows"];
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0]["prompt_tokens"], 8200);
}

void BenchKvDType() {
  EXPECT_THAT(Bench("decode", "--kv-dtype=f64").err, HasSubstr("--kv-dtype: KV dtype \"f64\""));
  const auto bytes_of_contexts = [](const std::string& flag) {
    const json rows = BenchJson(absl::StrCat("decode", kSmall, "--batch=1,3", flag))["rows"];
    return double{rows[1]["bytes"]} - double{rows[0]["bytes"]};
  };
  // Of two sequences, as in BenchBatch; a vector of int8 has a scale of 4 bytes.
  const double vectors = 2 * (8 + 1 + 15 / 2.0) * 8 * 2 * 2;
  EXPECT_EQ(bytes_of_contexts(""), vectors * 64 * 4);
  EXPECT_EQ(bytes_of_contexts(" --kv-dtype=bf16"), vectors * 64 * 2);
  EXPECT_EQ(bytes_of_contexts(" --kv-dtype=int8"), vectors * (64 + 4));
}

void BenchPrompts() {
  const json rows = BenchJson("prefill --model=checkpoints/bard --prompt-tokens=8,16")["rows"];
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0]["prompt_tokens"], 8);
  EXPECT_EQ(rows[1]["prompt_tokens"], 16);
}

void BenchDecodeTokens() {
  const std::string decode = absl::StrCat("decode", kSmall);
  EXPECT_EQ(BenchJson(decode + "--decode-tokens=5")["rows"][0]["samples"], 5);
  EXPECT_EQ(BenchJson(decode)["rows"][0]["samples"], 16);
}

constexpr char kOneKernel[] = "kernels --only='of 2: 1B o'";

void BenchOnly() {
  const json rows = BenchJson(kOneKernel)["rows"];
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0]["name"], "product of 2: 1B o 2048 x 2048");
  EXPECT_TRUE(BenchJson("kernels --only=nothing")["rows"].empty());
}

// `worker bench comm` on two ranks.
Outcome Comm(const std::string& worker, const std::string& flags) {
  return Run("tests/mpi/mpirun.sh", absl::StrCat("2 ", worker, " bench comm ", flags));
}

void CommDevice() {
  EXPECT_THAT(Comm(WorkerWith("lacking"), "--device=cuda").err, HasSubstr("libskein_absent.so"));
  EXPECT_THAT(Comm(WorkerWith("library"), "").err, HasSubstr("fake GPU 0 has no kernels"));
  EXPECT_THAT(Comm(WorkerWith("library"), "--device=cpu").out, HasSubstr("hop of 64.0 MiB"));
}

void CommJson() {
  const std::string file = NewPath("comm.json");
  EXPECT_TRUE(Comm(kWorker, "--json=" + file).ok());
  const json report = json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(report["rows"].size(), 10);
  EXPECT_EQ(report["rows"][1]["name"], "hop of 8.0 KiB");
  EXPECT_EQ(report["rows"][1]["ranks"], 2);
  EXPECT_THAT(Comm(kWorker, "--json=/nowhere/comm.json").err, HasSubstr("--json: "));
}

// It is taken, and changes nothing on CPUs; as OversubscribeDevices.
void CommOversubscribeDevices() {
  EXPECT_TRUE(Comm(kWorker, "--device=cpu --oversubscribe-devices").ok());
}

// `worker bench decode|prefill` on several ranks.
Outcome BenchOnRanks(int ranks, const std::string& command, const std::string& flags) {
  return Run("tests/mpi/mpirun.sh",
             absl::StrCat(ranks, " ", kWorker, " bench ", command, kSmall, flags));
}
json JsonOfRanks(int ranks, const std::string& command, const std::string& flags) {
  const std::string file = NewPath("ranks.json");
  const Outcome outcome = BenchOnRanks(ranks, command, absl::StrCat(flags, " --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
}

void BenchLayout(const std::string& command) {
  const json alone = BenchJson(command + kSmall);
  const json shards = JsonOfRanks(2, command, "");
  const json stages = JsonOfRanks(2, command, "--layout=pp=2");
  const json both = JsonOfRanks(4, command, "--layout=tp=2,pp=2");
  const auto of = [](const json& report, const char* what) {
    return double{report["rows"][0][what]};
  };
  // Shards read what one rank does, but for the vocabulary's padding.
  EXPECT_NEAR(of(shards, "bytes"), of(alone, "bytes"), 0.01 * of(alone, "bytes"));
  EXPECT_NEAR(of(shards, "operations"), of(alone, "operations"), 0.01 * of(alone, "operations"));
  for (const json* const report : {&stages, &both}) {
    if (command == "prefill") {  // a prompt goes through all stages
      EXPECT_NEAR(of(*report, "operations"), of(alone, "operations"),
                  0.01 * of(alone, "operations"));
    } else {  // the slowest one has half of the layers, and the output matrix or not
      EXPECT_GT(of(*report, "bytes"), 0.4 * of(alone, "bytes"));
      EXPECT_LT(of(*report, "bytes"), 0.7 * of(alone, "bytes"));
    }
  }
  if (command == "prefill") {
    EXPECT_THAT(BenchOnRanks(2, command, "--layout=dp=2").err,
                HasSubstr("--layout: one replica computes a prompt: leave dp out"));
  } else {  // each replica reads the weights, and its part of the batch
    const json replicas = JsonOfRanks(2, command, "--layout=dp=2 --batch=3");
    const json batch = BenchJson(command + kSmall + "--batch=3");
    EXPECT_NEAR(of(replicas, "bytes"), of(batch, "bytes") + of(alone, "bytes"),
                0.02 * of(alone, "bytes"));
    EXPECT_NEAR(of(replicas, "operations"), of(batch, "operations"),
                0.01 * of(batch, "operations"));
    EXPECT_THAT(BenchOnRanks(2, command, "--layout=dp=2 --batch=1").err,
                HasSubstr("--batch: 1 sequence for 2 replicas"));
  }
  EXPECT_THAT(BenchOnRanks(2, command, "--layout=pp=3").err,
              HasSubstr("--layout: tp=1,pp=3,dp=1 has 3 ranks; mpirun started 2"));
  EXPECT_THAT(Bench(command, "--layout=tp=2").err, HasSubstr("has 2 ranks; mpirun started 1"));
}

// It is taken, and changes nothing on CPUs; as OversubscribeDevices.
void BenchOversubscribeDevices(const std::string& command) {
  EXPECT_TRUE(BenchOnRanks(2, command, "--device=cpu --oversubscribe-devices").ok());
}

void BenchDeviceComm(const std::string& command) {
  EXPECT_THAT(Bench(command, "--device-comm=mpi").err,
              HasSubstr("--device-comm: must be auto, nccl, peers or host, not 'mpi'"));
  EXPECT_TRUE(BenchOnRanks(2, command, "--device=cpu --device-comm=nccl").ok());
}

}  // namespace

FlagCases WorkerBenchCases() {
  FlagCases cases = {
      HelpCase(kWorker, "bench"),
      {{"bench decode", "--batch"}, BenchBatch},
      {{"bench decode", "--prompt-tokens"}, BenchPromptTokens},
      {{"bench decode", "--decode-tokens"}, BenchDecodeTokens},
      {{"bench decode", "--kv-dtype"}, BenchKvDType},
      {{"bench prefill", "--prompt-tokens"}, BenchPrompts},
      {{"bench kernels", "--only"}, BenchOnly},
      {{"bench comm", "--device"}, CommDevice},
      {{"bench comm", "--json"}, CommJson},
      {{"bench comm", "--oversubscribe-devices"}, CommOversubscribeDevices},
  };
  for (const std::string command : {"decode", "prefill", "kernels", "comm"}) {
    cases.push_back(HelpCase(kWorker, "bench " + command));
    if (command == "comm") continue;
    const bool kernels = command == "kernels";
    const std::string name = "bench " + command;
    const std::string small = kernels ? kOneKernel : command + kSmall;
    cases.push_back({{name, "--device"}, [=] { BenchDevice("bench " + small); }});
    cases.push_back({{name, "--json"}, [=] { BenchJsonFile(small, kernels ? "1B o" : command); }});
    cases.push_back({{name, "--threads"}, [=] { BenchThreads(small); }});
    if (kernels) continue;
    cases.push_back({{name, "--profile"}, [=] { BenchProfile(command); }});
    cases.push_back({{name, "--decode"}, [=] { BenchDecodeForm(command); }});
    cases.push_back({{name, "--deterministic"}, [=] { BenchDeterministic(command); }});
    cases.push_back({{name, "--model"}, [=] { BenchModel(command); }});
    cases.push_back({{name, "--min-fraction"}, [=] { BenchMinFraction(command); }});
    cases.push_back({{name, "--layout"}, [=] { BenchLayout(command); }});
    cases.push_back(
        {{name, "--oversubscribe-devices"}, [=] { BenchOversubscribeDevices(command); }});
    cases.push_back({{name, "--device-comm"}, [=] { BenchDeviceComm(command); }});
  }
  return cases;
}

}  // namespace skein::testing
