// The other flags of `skein generate`.
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/held.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kRequest[] = "--prompt=ROMEO: --max-tokens=20 --temperature=0";

class Generate {
 public:
  explicit Generate(SharedCluster& shared) : shared_(shared) {}

  Asked Of(const std::string& flags) const { return Ask(shared_.address(), flags); }
  Asked OfRequest(const std::string& flags) const {
    Asked asked = Of(absl::StrCat(kRequest, " ", flags));
    EXPECT_TRUE(asked.outcome.ok()) << asked.outcome.err;
    return asked;
  }

  void Prompt() const {
    const std::string limit = " --max-tokens=20 --temperature=0";
    EXPECT_NE(Of("--prompt=ROMEO:" + limit).ids, Of("--prompt='A night '" + limit).ids);
  }

  void PromptFile() const {
    const std::string path = NewPath("prompt");
    std::ofstream(path) << "ROMEO:";
    const Asked asked =
        Of(absl::StrCat("--prompt-file=", path, " --max-tokens=20 --temperature=0"));
    EXPECT_EQ(asked.ids, OfRequest("").ids);
  }

  void Model() const {
    EXPECT_THAT(OfRequest("--model=bard").ids, SizeIs(20));
    const Asked other = Of(absl::StrCat(kRequest, " --model=other"));
    EXPECT_EQ(other.outcome.exit_code, 1);
    EXPECT_THAT(other.outcome.err, HasSubstr("NOT_FOUND"));
  }

  void MaxTokens() const {
    EXPECT_THAT(Of("--prompt=ROMEO: --temperature=0 --max-tokens=20").ids, SizeIs(20));
    EXPECT_THAT(Of("--prompt=ROMEO: --temperature=0 --max-tokens=21").ids, SizeIs(21));
  }

  void N() const {
    EXPECT_THAT(OfRequest("").finished, SizeIs(1));
    EXPECT_THAT(OfRequest("--n=3").finished, SizeIs(3));
  }

  // A replica has two requests that need all of its 16 sequences; two more wait for it. The later
  // of them is more urgent: it comes and goes while the earlier one waits.
  void Priority() const {
    Cluster& cluster = shared_.Get();
    const std::string all = "--prompt=ROMEO: --n=16 --ignore-eos ";
    const std::string command =
        absl::StrCat("exec ", kSkein, " generate --coordinator=", shared_.address(), " ", all);
    std::vector<std::unique_ptr<Process>> first;
    for (const int requests : {1, 2}) {
      first.push_back(std::make_unique<Process>(Process::Options{
          .name = "generate", .argv = {"sh", "-c", command + "--max-tokens=1000"}}));
      ASSERT_TRUE(WaitForRequests(cluster, requests, 0));
    }
    const auto later = [&, this](const std::string& flags) {
      return std::async(std::launch::async, [=, this] { return Of(absl::StrCat(all, flags)); });
    };
    std::future<Asked> normal = later("--max-tokens=200");
    ASSERT_TRUE(WaitForRequests(cluster, 2, 1));
    std::future<Asked> urgent = later("--max-tokens=2 --priority=50");
    ASSERT_TRUE(WaitForRequests(cluster, 2, 2));
    first.clear();  // killed; nothing depends on when they would have ended
    const nlohmann::json waited = normal.get().finished.at(0).at("usage");
    const nlohmann::json lived = urgent.get().finished.at(0).at("usage");
    EXPECT_GT(waited.at("first_token_seconds").get<double>(),
              lived.at("total_seconds").get<double>());
  }

  void PromptLogprobs() const {
    EXPECT_THAT(OfRequest("").prompt_logprobs, SizeIs(0));
    const Asked asked = OfRequest("--prompt-logprobs=2");
    ASSERT_THAT(asked.prompt_logprobs, SizeIs(asked.prompt_tokens() - 1));
    for (const auto& token : asked.prompt_logprobs) {
      EXPECT_THAT(token.at("top_logprobs"), SizeIs(2));
    }
  }

  void Stop() const {
    EXPECT_THAT(OfRequest("").text, HasSubstr("a man"));
    const Asked asked = OfRequest("--stop=man");
    EXPECT_EQ(asked.reason(), "REASON_STOP");
    EXPECT_THAT(asked.text, EndsWith(" a "));
  }

  void StopId() const {
    const Asked whole = OfRequest("");
    const Asked asked = OfRequest(absl::StrCat("--stop-id=", whole.ids[1]));
    EXPECT_EQ(asked.reason(), "REASON_EOS");
    EXPECT_THAT(asked.ids, SizeIs(2));
  }

  // The first token of every prompt and this one; or as many as its letters take.
  void ParseSpecial() const {
    const std::string request = "--prompt='<|endoftext|>' --max-tokens=1";
    EXPECT_GT(Of(request).prompt_tokens(), 5);
    EXPECT_EQ(Of(request + " --parse-special").prompt_tokens(), 2);
  }

  void Json() const {
    const std::string generate =
        absl::StrCat("generate --coordinator=", shared_.address(), " ", kRequest);
    EXPECT_THAT(Run(kSkein, generate).out, Not(HasSubstr("{")));
    EXPECT_THAT(Run(kSkein, generate + " --json").out, StartsWith("{\"accepted\":"));
  }

  void Timeout() const {
    const Asked asked = Of("--prompt=ROMEO: --n=16 --ignore-eos --timeout=10ms");
    EXPECT_EQ(asked.outcome.exit_code, 1);
    EXPECT_THAT(asked.outcome.err, HasSubstr("DEADLINE_EXCEEDED: not done after 10ms"));
  }

  // With none it fails at once; else until a replica is there, longer than the default of 10 s.
  static void Wait() {
    Cluster cluster({});
    const Asked none = Ask(cluster.address(), absl::StrCat(kRequest, " --wait=0s"));
    EXPECT_EQ(none.outcome.exit_code, 1);
    EXPECT_THAT(none.outcome.err, HasSubstr("UNAVAILABLE"));
    Process waits({.name = "generate",
                   .argv = {kSkein, "generate", "--coordinator=" + cluster.address(),
                            "--prompt=ROMEO:", "--max-tokens=2", "--wait=60s"}});
    EXPECT_TRUE(waits.WaitForOutput("waiting up to 1m", absl::Seconds(20)));
    cluster.StartJob(1);
    EXPECT_EQ(waits.Wait(absl::Seconds(60)), 0);
  }

 private:
  SharedCluster& shared_;
};

}  // namespace

FlagCases GenerateCases(SharedCluster& shared) {
  const Generate generate(shared);
  return {
      HelpCase(kSkein, "generate"),
      {{"generate", "--prompt"}, [=] { generate.Prompt(); }},
      {{"generate", "--prompt-file"}, [=] { generate.PromptFile(); }},
      {{"generate", "--model"}, [=] { generate.Model(); }},
      {{"generate", "--max-tokens"}, [=] { generate.MaxTokens(); }},
      {{"generate", "--n"}, [=] { generate.N(); }},
      {{"generate", "--priority"}, [=] { generate.Priority(); }},
      {{"generate", "--prompt-logprobs"}, [=] { generate.PromptLogprobs(); }},
      {{"generate", "--stop"}, [=] { generate.Stop(); }},
      {{"generate", "--stop-id"}, [=] { generate.StopId(); }},
      {{"generate", "--parse-special"}, [=] { generate.ParseSpecial(); }},
      {{"generate", "--json"}, [=] { generate.Json(); }},
      {{"generate", "--timeout"}, [=] { generate.Timeout(); }},
      {{"generate", "--wait"}, Generate::Wait},
  };
}

}  // namespace skein::testing
