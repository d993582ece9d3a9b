// The flags of `worker probe`, and those by which jobs measure their hosts.
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/worker_cases.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using nlohmann::json;

void ProbeDevice() {
  EXPECT_THAT(Run(WorkerWith("lacking"), "probe --device=cuda").err,
              HasSubstr("libskein_absent.so"));
  EXPECT_THAT(Run(WorkerWith("library"), "probe").err, HasSubstr("fake GPU 0 has no kernels"));
}

void ProbeDeviceComm() {
  EXPECT_THAT(Run(kWorker, "probe --device-comm=mpi").err,
              HasSubstr("--device-comm: must be auto, nccl, peers or host, not 'mpi'"));
}

// Of two ranks of this host, whose figures are all there, and some 5 s away at most.
void ProbeJson() {
  const std::string file = NewPath("probe.json");
  const absl::Time begin = absl::Now();
  const Outcome outcome =
      Run("tests/mpi/mpirun.sh", absl::StrCat("2 ", kWorker, " probe --device=cpu --json=", file));
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("measured in "));
  // 5 s are the aim, on a machine that does nothing else.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(40)) << outcome.err;
  const json report = json::parse(ReadFileOrEmpty(file), nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(report["hosts"].size(), 1);
  const json& host = report["hosts"][0];
  EXPECT_EQ(host["core_rates"]["origin"], "measured");
  ASSERT_EQ(host["core_rates"]["reads"].size(), 7);
  for (const json& read : host["core_rates"]["reads"]) {
    EXPECT_GT(read["together_bytes_per_s"], 1e8);
    EXPECT_GE(read["alone_bytes_per_s"], read["together_bytes_per_s"]);
  }
  const json& overhead = host["core_rates"]["overheads"][0];
  EXPECT_GT(overhead.value("step_us", 0.0) + overhead.value("layer_us", 0.0), 0);
  // Of four numbers of rows, in bf16 five, and five beyond caches: bf16 with four working sets, two
  // other dtypes with three, quantised ones with one.
  EXPECT_EQ(host["core_rates"]["products"].size(), (3 * 5 + 5) + 2 * (2 * 4 + 5) + 7 * 4);
  // Contexts of 4 MiB, which a cache may hold, up to four times what each of the ranks that measure
  // has of the last cache; of 64 at least, and no more than reads are measured of.
  const auto bytes_of = [](const json& of, const char* name) {
    return std::stoll(of.value(name, "0"));
  };
  const int64_t ranks = std::min<int64_t>(2, host["cores"].get<int64_t>());
  const int64_t beyond =
      std::min<int64_t>(4 * bytes_of(host, "l3_bytes") / ranks,
                        bytes_of(host["core_rates"]["reads"][6], "working_set_bytes"));
  std::vector<int64_t> sets = {4 << 20, 16 << 20, 64 << 20};
  if (beyond > sets.back()) sets.push_back(std::min<int64_t>(beyond, 256 << 20));
  ASSERT_EQ(host["core_rates"]["attention"].size(), sets.size());
  for (size_t i = 0; i < sets.size(); ++i) {
    const json& attention = host["core_rates"]["attention"][i];
    EXPECT_GT(attention["bytes_per_s"], 1e8);
    EXPECT_GE(std::stoll(attention["rows"].get<std::string>()), 8);
    // With weights.
    EXPECT_GT(bytes_of(attention, "working_set_bytes"), sets[i]);
    EXPECT_LT(bytes_of(attention, "working_set_bytes"), sets[i] + (2 << 20));
  }
  EXPECT_EQ(host["links"][0]["path"], "X");
  std::set<std::string> exchanges;
  for (const json& curve : host["exchanges"]) {
    exchanges.insert(curve["exchange"]);
    EXPECT_EQ(curve["ranks"], 2);
    EXPECT_EQ(curve["times"].size(), 5);
  }
  EXPECT_EQ(exchanges,
            std::set<std::string>({"all_gather", "all_reduce", "send_receive", "send_to_awake"}));
  // The same without the file.
  EXPECT_TRUE(json::accept(Run(kWorker, "probe --device=cpu").out));
  // Whatever libraries print.
  const Outcome remarked = Run(WorkerWith("remarking"), "probe");
  EXPECT_THAT(remarked.err, HasSubstr("a remark of a library that sees no GPU\n"));
  EXPECT_TRUE(json::accept(remarked.out)) << remarked.out;
  EXPECT_THAT(Run(kWorker, "probe --device=cpu --json=/nowhere/probe.json").err,
              HasSubstr("--json: "));
}

// What a job says of its figures, and whether its plan says that they were assumed.
std::string FiguresWith(const std::string& cache, const std::vector<std::string>& flags) {
  unsetenv("SKEIN_NO_PROBE");
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  Serving cluster(flags);
  const std::string plan = cluster.ServingJob(0).plan_table();
  const std::string log = cluster.job().Output();
  setenv("SKEIN_NO_PROBE", "1", 1);
  unsetenv("XDG_CACHE_HOME");
  std::string how = "never";
  if (absl::StrContains(log, "host: measured in ")) how = "now";
  if (absl::StrContains(log, "host: as they were measured ")) how = "before";
  return absl::StrCat(how, absl::StrContains(plan, "that were measured") ? "" : ", assumed");
}

void Probe() {
  const std::string cache = NewPath("cache");
  EXPECT_EQ(FiguresWith(cache, {"--no-probe"}), "never, assumed");
  EXPECT_EQ(FiguresWith(cache, {}), "now");
  EXPECT_EQ(FiguresWith(cache, {}), "before");
  EXPECT_EQ(FiguresWith(cache, {"--no-probe"}), "before");
  EXPECT_EQ(FiguresWith(NewPath("cache"), {"--probe"}), "now");
}

// A job that serves on figures that were kept, or on none, is measured beside by nobody.
void ProbeIsNeverBesideAJob() {
  const std::string cache = NewPath("cache");
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  for (const char* flag : {"--no-probe", "--probe", "--probe"}) {
    Serving cluster({flag});
    const Outcome refused = Run(kWorker, "probe --device=cpu");
    EXPECT_EQ(refused.exit_code, 1) << flag;
    EXPECT_THAT(refused.err, HasSubstr("another job serves on these cores")) << flag;
  }
  EXPECT_TRUE(Run(kWorker, "probe --device=cpu").ok());
  unsetenv("XDG_CACHE_HOME");
}

// Those of a file that no probe of now gives.
void Figures() {
  const std::string file = NewPath("figures.json");
  ASSERT_TRUE(Run(kWorker, absl::StrCat("probe --device=cpu --json=", file)).ok());
  json figures = json::parse(ReadFileOrEmpty(file));
  json& rates = figures["hosts"][0]["core_rates"];
  rates["spread"] = 0.77;
  SKEIN_ASSERT_OK(WriteFile(file, figures.dump()));
  Serving given({"--figures=" + file});
  EXPECT_THAT(given.ServingJob(0).plan_table(), HasSubstr("that were measured ±77%"));
  EXPECT_THAT(given.job().Output(), HasSubstr(absl::StrCat("figures of this host: as ", file)));

  rates.erase("reads");
  SKEIN_ASSERT_OK(WriteFile(file, figures.dump()));
  Cluster cluster({});
  Process& lacking = cluster.StartJob(2, {"--figures=" + file});
  EXPECT_NE(lacking.Wait(absl::Seconds(20)).value_or(0), 0);
  EXPECT_THAT(lacking.Output(), HasSubstr(absl::StrCat("--figures: ", file, ": it has no rates")));

  const std::string rank =
      absl::StrCat(kWorker, " --coordinator=127.0.0.1:1 --orphan-timeout=1ms --device=cpu");
  EXPECT_THAT(Said(Run("tests/mpi/mpirun.sh",
                       absl::StrCat("1 ", rank, " --figures=", file, " : -np 1 ", rank))),
              ContainsRegex(" --figures and rank 1 has Skein .*: start all ranks of a job with"));
}

// The JSON of one rank, which is its own world.
std::string Told(const std::string& flags) {
  const Outcome outcome = Run(kWorker, "doctor " + flags);
  EXPECT_TRUE(outcome.ok()) << outcome.err;
  return outcome.out;
}

void DoctorModel() {
  EXPECT_THAT(Told(""), HasSubstr("\"model\":\"\""));
  EXPECT_THAT(Told("--model=checkpoints/bard"), HasSubstr("\"model_path\":\"checkpoints/bard\""));
}

void DoctorPort() {
  EXPECT_THAT(Told(""), HasSubstr("\"port\":0,"));
  EXPECT_THAT(Told("--port=45678"), HasSubstr("\"port\":45678,"));
}

// MPI would tell when ranks had met.
void DoctorAlone() {
  EXPECT_THAT(Told(""), Not(HasSubstr("\"clock_s\":0.0")));
  EXPECT_THAT(Told("--alone"), HasSubstr("\"clock_s\":0.0"));
}

}  // namespace

FlagCases WorkerProbeCases() {
  return {HelpCase(kWorker, "probe"),
          HelpCase(kWorker, "doctor"),
          {{"doctor", "--model"}, DoctorModel},
          {{"doctor", "--port"}, DoctorPort},
          {{"doctor", "--alone"}, DoctorAlone},
          {{"probe", "--device"}, ProbeDevice},
          {{"probe", "--device-comm"}, ProbeDeviceComm},
          {{"probe", "--json"}, ProbeJson},
          {{"", "--figures"}, Figures},
          {{"", "--probe"}, ProbeIsNeverBesideAJob},
          {{"", "--no-probe"}, Probe}};
}

}  // namespace skein::testing
