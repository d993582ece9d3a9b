// The skein program against a coordinator in the test's process.
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/test_util.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/skein_program.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using coordinator::FakeJob;
using coordinator::TestCoordinator;

class SkeinTest : public ::testing::Test {
 protected:
  std::string At() const { return absl::StrCat(" --coordinator ", coordinator_.address(), " "); }

  // A job that answers with the prompt, or holds on to prompts "hold".
  std::unique_ptr<FakeJob> Serve() {
    auto job = std::make_unique<FakeJob>(coordinator::FakeJobOptions{
        .coordinator = coordinator_.address(), .script = [](const serving::Request& request) {
          const std::string prompt(request.prompt.begin(), request.prompt.end());
          std::vector<serving::AnswerOutput> outputs;
          if (prompt != "hold") outputs.push_back(coordinator::TextOutput(request.id, prompt));
          return outputs;
        }});
    EXPECT_TRUE(coordinator_.WaitUntilServing());
    return job;
  }

  static coordinator::Daemon::Options Options() {
    coordinator::Daemon::Options options = coordinator::TestOptions();
    options.model.limits.constraints.max_num_seqs = 4;  // room for the answers of one request
    return options;
  }

  TestCoordinator coordinator_{Options()};
};

TEST_F(SkeinTest, StatusShowsTheVersionOfAJobWhereItIsAnother) {
  const auto same = Serve();
  EXPECT_THAT(Skein("status" + At()).out,
              AllOf(HasSubstr("job job: serving, 1 of 1 ranks"), Not(HasSubstr(", Skein"))));
  const FakeJob other(coordinator::FakeJobOptions{
      .coordinator = coordinator_.address(), .job_id = "other", .version = "0.9"});
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return coordinator_.Status().jobs_size() == 2; }));
  EXPECT_THAT(Skein("status" + At()).out, HasSubstr(", Skein 0.9, 1 of 1 ranks"));
}

TEST_F(SkeinTest, GenerateStreamsTextAndStatistics) {
  const auto job = Serve();
  const Outcome outcome = Skein("generate --prompt 'two words' --seed 7" + At());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "two words\n");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("prompt 9 tokens, answer 10 tokens"),
                                 HasSubstr("seed 7"), HasSubstr("end: end of sequence")));
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
  EXPECT_THAT(missing.err, HasSubstr("--prompt-file: cannot read '/nowhere'"));
  EXPECT_THAT(Skein("generate --prompt-file /" + At()).err, HasSubstr("Is a directory"));
}

TEST_F(SkeinTest, OutputThatIsLostIsAFailure) {
  const auto job = Serve();
  for (const char* command : {"generate --prompt 'two words'", "generate --prompt x --json",
                              "status", "status --json", "models", "--help"}) {
    const Outcome outcome = Skein(absl::StrCat(command, At(), ">/dev/full"));
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_THAT(outcome.err, HasSubstr("output was lost"));
  }
}

TEST_F(SkeinTest, JsonHasEveryEvent) {
  const auto job = Serve();
  const Outcome outcome = Skein("generate --prompt abc --json --stop c --stop z" + At());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(StartsWith("{\"accepted\":"), HasSubstr("\"text\":\"ab\""),
                                 HasSubstr("\"reason\":\"REASON_STOP\""),
                                 Not(HasSubstr("\"token\":"))));  // not asked for
}

TEST_F(SkeinTest, SeveralAnswersComeOneAfterTheOther) {
  FakeJob job(
      {.coordinator = coordinator_.address(), .script = [](const serving::Request& request) {
         std::vector<serving::AnswerOutput> outputs;
         const auto add = [&](int32_t answer, const std::string& text, auto finish) {
           outputs.push_back(coordinator::TextOutput(request.id, text, finish));
           outputs.back().answer = answer;
         };
         using Finish = serving::Finish;
         add(1, "second ", Finish::kNotFinished);
         add(2, "third", Finish::kEos);
         add(0, "fir", Finish::kNotFinished);
         add(1, "answer\n", Finish::kEos);
         add(0, "st", Finish::kEos);
         return outputs;
       }});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  const Outcome outcome = Skein("generate --prompt x --n 3" + At());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "== answer 1 of 3 ==\nfirst\n== answer 2 of 3 ==\nsecond answer\n"
            "== answer 3 of 3 ==\nthird\n");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("answer 6 tokens"), HasSubstr("answer 15 tokens")));
  EXPECT_THAT(Skein("generate --prompt x --n 17" + At()).err, HasSubstr("n: 17 is not in [1, 16]"));
}

TEST_F(SkeinTest, LogprobsComeWithTheTokensText) {
  FakeJob job(
      {.coordinator = coordinator_.address(), .script = [](const serving::Request& request) {
         serving::AnswerOutput output = coordinator::TextOutput(request.id, "a\n");
         output.tokens[0].logprob = -1.5f;
         output.tokens[0].top_logprobs = {{'b', -0.25f}, {'a', -1.5f}};
         output.tokens[1].logprob = -0.5f;
         output.tokens[1].top_logprobs = {{'\'', -0.125f}, {0xE2, -3.0f}};
         output.prompt_logprobs = {{.id = 'y', .logprob = -2, .top_logprobs = {{'z', -0.5f}}}};
         return std::vector<serving::AnswerOutput>{output};
       }});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  const Outcome outcome = Skein("generate --prompt xy --logprobs 2 --prompt-logprobs 1" + At());
  EXPECT_EQ(outcome.out, "a\n");
  EXPECT_THAT(outcome.err, StartsWith("prompt token 121 'y': -2.0000  122 'z' -0.5000\n"
                                      "token 97 'a': -1.5000  98 'b' -0.2500  97 'a' -1.5000\n"
                                      "token 10 '\\n': -0.5000  39 '\\'' -0.1250  "
                                      "226 '\\342' -3.0000\n"));
}

TEST_F(SkeinTest, EveryFlagSetsItsField) {
  FakeJob job({.coordinator = coordinator_.address()});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  Outcome outcome;
  std::thread skein([&] {
    outcome = Skein(
        "generate --prompt xy --max-tokens 9 --priority -7 --prompt-logprobs 2 "
        "--temperature 0.5 --top-k 3 --top-p 0.25 --min-p 0.125 --typical-p 0.75 "
        "--mirostat-tau 5 --mirostat-eta 0.375 --repetition-penalty 1.5 --presence-penalty -1 "
        "--frequency-penalty 2 --dry-multiplier 0.875 --dry-base 1.25 --dry-allowed-length 4 "
        "--dry-last-n 64 --dry-breaker y --dry-breaker z --logit-bias 65=-1.5 --logit-bias 66=7 "
        "--min-tokens 6 --ignore-eos --stop-id 67 --stop-id 68 --seed 8 --logprobs 1" +
        At());
  });
  const auto request = job.WaitForRequest();
  // Ended by the first of --stop-id.
  if (request.has_value()) {
    job.Send({.request_id = request->id, .tokens = {{.id = 67}}, .finish = serving::Finish::kEos});
  }
  skein.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->max_tokens, 9);
  EXPECT_EQ(request->priority, -7);
  EXPECT_EQ(request->prompt_logprobs, 2);
  EXPECT_THAT(request->eos_token_ids, ElementsAre(67, 68));
  const serving::SamplingParams& sampling = request->sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.typical_p, 0.75f);
  EXPECT_EQ(sampling.mirostat_tau, 5.0f);
  EXPECT_EQ(sampling.mirostat_eta, 0.375f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.presence_penalty, -1.0f);
  EXPECT_EQ(sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(sampling.dry_multiplier, 0.875f);
  EXPECT_EQ(sampling.dry_base, 1.25f);
  EXPECT_EQ(sampling.dry_allowed_length, 4);
  EXPECT_EQ(sampling.dry_last_n, 64);
  EXPECT_THAT(sampling.dry_breakers, UnorderedElementsAre(ElementsAre('y'), ElementsAre('z')));
  EXPECT_THAT(sampling.logit_bias,
              ElementsAre(serving::TokenBias{65, -1.5f}, serving::TokenBias{66, 7}));
  EXPECT_EQ(sampling.min_tokens, 6);
  EXPECT_EQ(sampling.seed, 8u);
  EXPECT_EQ(sampling.logprobs, 1);
}

TEST_F(SkeinTest, ErrorsAreExplained) {
  const Outcome idle = Skein("generate --prompt x --wait 0s" + At());
  EXPECT_EQ(idle.exit_code, 1);
  EXPECT_THAT(idle.err, HasSubstr("UNAVAILABLE: no replica serves"));
  const auto job = Serve();
  const Outcome invalid = Skein("generate --prompt x --temperature -1" + At());
  EXPECT_EQ(invalid.exit_code, 1);
  EXPECT_THAT(invalid.err, HasSubstr("INVALID_ARGUMENT: sampling.temperature: -1"));
  const Outcome late = Skein("generate --prompt hold --timeout 300ms" + At());
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, HasSubstr("not done after 300ms (--timeout)"));
  const Outcome absent = Skein("generate --prompt x --wait 300ms --coordinator 127.0.0.1:1");
  EXPECT_THAT(absent.err, HasSubstr("no coordinator answers at 127.0.0.1:1 yet; waiting"));
  const Outcome nobody = Skein("generate --prompt x --wait 0s --coordinator 127.0.0.1:1");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, AllOf(HasSubstr("no coordinator answers at 127.0.0.1:1"),
                                HasSubstr("coordinator --model")));
}

TEST_F(SkeinTest, GenerateWaitsForAReplica) {
  std::ofstream(SkeinErrorFile()) << "";  // of the run before
  std::unique_ptr<FakeJob> job;
  std::thread later([&] {
    EXPECT_TRUE(TestCoordinator::WaitFor(
        [] { return absl::StrContains(ReadFileOrEmpty(SkeinErrorFile()), "waiting up to 20s"); }));
    job = Serve();
  });
  const Outcome outcome = Skein("generate --prompt abc --wait 20s" + At());
  later.join();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "abc\n");
  EXPECT_THAT(outcome.err, HasSubstr("waiting up to 20s"));
}

TEST_F(SkeinTest, AnInterruptCancelsTheRequest) {
  FakeJob job({.coordinator = coordinator_.address()});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  Outcome outcome;
  std::thread skein([&] { outcome = Skein("generate --prompt x" + At()); });
  const auto request = job.WaitForRequest();
  InterruptSkein();
  skein.join();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "skein: interrupted\n");
  ASSERT_TRUE(request.has_value());
  EXPECT_TRUE(job.WaitForCancel(request->id));
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

TEST_F(SkeinTest, StatusShowsLostJobsLastAndHowLongAgo) {
  const auto job = Serve();
  job->Kill(0);
  ASSERT_TRUE(coordinator_.WaitUntilServing(false));
  FakeJob later({.coordinator = coordinator_.address(), .job_id = "later"});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  EXPECT_THAT(Skein("status" + At()).out,
              ContainsRegex("job later: serving, (.|\n)*job job: lost [0-9]+s? ago, 1 of 1 ranks\n"
                            "  rank 0 on host0 .* is lost: "));
}

TEST_F(SkeinTest, StatusShowsMemoryAndCounters) {
  FakeJob job({.coordinator = coordinator_.address(),
               .replica_load = {.total_pages = 100,
                                .free_pages = 60,
                                .used_pages = 30,
                                .shared_pages = 4,
                                .cached_pages = 15,
                                .total_swap_pages = 20,
                                .free_swap_pages = 17,
                                .steps = 200,
                                .prompt_tokens = 1000,
                                .cached_tokens = 256,
                                .preemptions_swapped = 2,
                                .preemptions_recomputed = 1,
                                .host_time = absl::Milliseconds(17)},
               .script = [](const serving::Request& request) {
                 return std::vector<serving::AnswerOutput>{
                     coordinator::TextOutput(request.id, "x")};
               }});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  ASSERT_EQ(Skein("generate --prompt x" + At()).exit_code, 0);
  EXPECT_THAT(
      Skein("status" + At()).out,
      AllOf(HasSubstr("pages: 30 used (4 shared), 15 cached, 60 free of 100; swap: 3 used of 20\n"),
            HasSubstr("prefix cache: 25.6% of 1000 prompt tokens; preemptions: 2 swapped, "
                      "1 recomputed; host: 85 us/step\n")));
  EXPECT_THAT(
      Skein("status --json" + At()).out,
      AllOf(HasSubstr("\"used_pages\":\"30\""), HasSubstr("\"shared_pages\":\"4\""),
            HasSubstr("\"cached_pages\":\"15\""), HasSubstr("\"free_pages\":\"60\""),
            HasSubstr("\"total_pages\":\"100\""), HasSubstr("\"free_swap_pages\":\"17\""),
            HasSubstr("\"cached_tokens\":\"256\""), HasSubstr("\"preemptions_swapped\":\"2\""),
            HasSubstr("\"host_seconds\":0.017")));
}

TEST(SkeinUsageTest, WrongUsageIsExitCode2AndNamesTheFlag) {
  struct Case {
    const char* arguments;
    const char* says;
  };
  const Case cases[] = {
      {"", "subcommand"},
      {"nonsense", "nonsense"},
      {"generate", "--prompt"},
      {"generate --prompt a --prompt-file b", "--prompt"},
      {"generate --prompt a --max-tokens x", "--max-tokens: must be a whole number"},
      {"generate --prompt a --n -1", "--n: must be a whole number in [0, 4294967295], not '-1'"},
      {"generate --prompt a --temperature nan", "--temperature: must be a number, not 'nan'"},
      {"generate --prompt a --logit-bias 5", "--logit-bias: '5'"},
      {"generate --prompt a --logit-bias -1=2", "--logit-bias: '-1=2'"},
      {"generate --prompt a --timeout inf", "--timeout: must be a duration"},
      {"status --wait soon", "--wait: must be a duration in [0, 8760h], like 30s"},
      {"status --coordinator nonsense", "--coordinator: 'nonsense' is not HOST:PORT"},
      {"models --coordinator http://host:50051", "is not HOST:PORT"},
      {"models --coordinator=", "--coordinator: '' is not HOST:PORT"},
      {"plan", "--model"},
      {"plan --modle m", "--modle"},
      {"plan --model=", "--model: must not be empty"},
      {"plan --model m --ranks 0", "--ranks: must be a whole number in [1, 1024], not '0'"},
      {"plan --model m --layout tp=x", "--layout: layout \"tp=x\""},
      {"plan --model m --kv-memory lots", "--kv-memory: KV memory \"lots\""},
      {"plan --model m --kv-dtype f8", "--kv-dtype: KV dtype \"f8\""},
      {"plan --model m --swap-memory 1", "--swap-memory: swap memory \"1\""},
      {"plan --model m --context-length -1", "--context-length: must be"},
      {"plan --model m --max-num-seqs 5000", "--max-num-seqs: must be"},
      {"plan --model m --max-num-batched-tokens 3 --max-num-seqs 4",
       "--max-num-batched-tokens: 3 is less than"},
      {"plan --model m --prompt-tokens 0", "--prompt-tokens: must be a whole number in [1, "},
      {"plan --model m --tpot-limit soon", "--tpot-limit: 'soon' is no time"},
      {"plan --model m --nodes 2", "--nodes requires --topology"},
      {"plan --model m --ranks 2 --json", " excludes --"},
      {"plan --model m --topology pcie-4 --ranks 2", " excludes --"},
      {"plan --model m --topology pcie-4 --kv-memory 1GiB", " excludes --"},
      {"plan --model m --ranks 2 --pareto f", " excludes --"},
      {"plan --model m --ranks 2 --coordinator h:1",
       "--coordinator: this command asks no coordinator"},
      {"topo ''", "machines: must not be empty"},
      {"topo pcie-4 --nodes 0", "--nodes: must be a whole number in [1, 1024], not '0'"},
      {"topo f --nvlinks -1", "--nvlinks: must be a whole number in [0, 64]"},
      {"plan --model m --topology pcie-4 --objective cheap",
       "--objective: must be throughput or latency, not 'cheap'"},
      {"plan --model m --topology pcie-4 --ttft-limit=-1s", "--ttft-limit: '-1s' is no time"},
      {"topo f --jsn", "--jsn"},
      {"topo f --coordinator h:1", "--coordinator: this command asks no coordinator"},
      {"--coordinator h:1 bench", "--coordinator: this command asks no coordinator"},
      {"bench --coordinator h:1 serve", "stand behind `serve`, not: --coordinator h:1"},
      {"bench --worker w serve", "--worker: `bench serve` starts no worker"},
      {"bench serve --coordinator nonsense", "--coordinator: 'nonsense' is not HOST:PORT"},
      {"bench serve --rate 0", "--rate: must be a number in [0.001, 100000], not '0'"},
      {"bench serve --rate nan", "--rate: must be a number"},
      {"bench serve --rate 1 --concurrency 2", " excludes --"},
      {"bench serve --nonsense", "--nonsense"},
      {"bench serve --lengths f --prompt-tokens 3", "--lengths"},
      {"bench serve --prompt-tokens 0", "--prompt-tokens: must be a whole number in [1, "},
      {"bench serve --ttft-limit soon", "--ttft-limit: must be a duration"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = Skein(c.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << c.arguments;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("skein: "), HasSubstr(c.says))) << c.arguments;
  }
}

TEST(SkeinUsageTest, HelpIsExitCode0) {
  for (const char* help : {"--help", "generate --help", "status --help", "plan --help",
                           "topo --help", "bench serve --help", "--version"}) {
    EXPECT_EQ(Skein(help).exit_code, 0) << help;
  }
  EXPECT_THAT(Skein("--help").out, HasSubstr("bench"));
  EXPECT_THAT(Skein("bench serve --help").out, HasSubstr("--shared-prefix"));
}

TEST(SkeinUsageTest, PlanShowsAndDrawsAPlan) {
  const std::string svg = absl::StrCat(::testing::TempDir(), "/plan.svg");
  const Outcome outcome = Skein(absl::StrCat(
      "plan --model synthetic:tiny --ranks 2 --layout tp=1,pp=2 --max-num-seqs 4 --gantt ", svg));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("synthetic:tiny"), HasSubstr("stage")));
  EXPECT_THAT(ReadFileOrEmpty(svg), AllOf(HasSubstr("stage 1"), HasSubstr("tp=1,pp=2,dp=1"),
                                          HasSubstr("4 sequences in 2 micro-batches")));
  // The load that the plan is made for is drawn.
  EXPECT_EQ(Skein(absl::StrCat("plan --model synthetic:tiny --ranks 2 --layout tp=1,pp=2 "
                               "--concurrency 1 --gantt ",
                               svg))
                .exit_code,
            0);
  EXPECT_THAT(ReadFileOrEmpty(svg), HasSubstr("1 sequence in 1 micro-batch"));
  const Outcome impossible = Skein("plan --model synthetic:tiny --ranks 3 --layout tp=2,dp=2");
  EXPECT_EQ(impossible.exit_code, 3);  // as what does not fit
  EXPECT_THAT(impossible.err,
              MatchesRegex("skein: --layout: layout tp=2,dp=2 does not work for "
                           "synthetic:tiny on 3 ranks:\n  tp=2,dp=2 needs at least 4 ranks; the "
                           "job has 3\nNearest that work: tp=[^\n]*\n"));
  EXPECT_THAT(Skein("plan --model synthetic:tiny --ranks 3 --layout tp=2").out,
              AllOf(HasSubstr(" of 3 ranks\n"), HasSubstr("\n    2  idle\n")));
  EXPECT_THAT(Skein("plan --model synthetic:tiny --ranks 8 --layout tp=1,pp=2,dp=4").out,
              MatchesRegex("(.|\n)*\nother layouts\n- tp=1,pp=2,dp=4 was asked for:\n"
                           "(    tp=[0-9tpd=, ]*\n){2}"));
  EXPECT_THAT(Skein("plan --model /nowhere").err, HasSubstr("--model: /nowhere/config.json"));
  EXPECT_THAT(Skein("plan --model synthetic:tiny --context-length 99999999").err,
              HasSubstr("--context-length: 99999999 is too long for synthetic:tiny"));
  EXPECT_THAT(Skein("plan --model synthetic:tiny --gantt /nowhere/file").err,
              HasSubstr("--gantt: cannot write '/nowhere/file'"));
}

// An installation has both programs in one folder, a build each in its own.
TEST(SkeinUsageTest, BenchFindsTheWorkerBesideIt) {
  namespace fs = std::filesystem;
  for (const char* place : {"client/worker", "worker/worker"}) {
    const fs::path root = fs::path(::testing::TempDir()) / "programs";
    const fs::path skein = root / "client/skein";
    const fs::path worker = root / place;
    fs::remove_all(root);
    fs::create_directories(skein.parent_path());
    fs::copy_file("client/skein", skein);
    EXPECT_THAT(Skein("bench", skein).err, HasSubstr("no worker program beside this one"));
    fs::create_directories(worker.parent_path());
    std::ofstream(worker) << "#!/bin/sh\necho \"worker $*\"\n";
    fs::permissions(worker, fs::perms::owner_all);
    EXPECT_EQ(Skein("bench decode --threads 2", skein).out, "worker bench decode --threads 2\n")
        << place;
  }
}

TEST(SkeinUsageTest, BenchStartsTheWorkerWithTheOtherFlags) {
  EXPECT_EQ(Skein("bench --worker /bin/echo decode --model=synthetic:llama3-1b --threads 2").out,
            "bench decode --model=synthetic:llama3-1b --threads 2\n");
  EXPECT_EQ(Skein("bench prefill --worker /bin/echo --help").out, "bench prefill --help\n");
  for (const std::string help : {"-h", "--help"}) {
    EXPECT_THAT(Skein("bench --worker /bin/echo " + help).out,
                AllOf(HasSubstr("skein bench [OPTIONS]"), HasSubstr("Load a coordinator"),
                      EndsWith("worker bench` are:\n\nbench " + help + "\n")));
  }
  const Outcome missing = Skein("bench --worker /nowhere/worker");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/worker"));
}

}  // namespace
}  // namespace skein::client
