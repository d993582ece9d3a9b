// Answers whose coordinator is killed in their middle, again and again, go on with the next one:
// clients of gRPC and HTTP, and `skein generate`, get what an undisturbed run gives. Real
// processes, real signals; the supervisor starts the workers again, which end with their
// coordinator.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "coordinator/gateway/http_client_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

using coordinator::HttpTestClient;
using ::nlohmann::json;

constexpr uint32_t kTokens = 600;

// Everything whose state the next coordinator must have: draws, histories, mirostat's state, text
// that is held back for a stop string, several answers, log probabilities.
std::vector<v1::GenerateRequest> Requests() {
  v1::GenerateRequest greedy = GreedyRequest("ROMEO:", kTokens);
  v1::GenerateRequest sampled = GreedyRequest("First Citizen:\n", kTokens);
  sampled.mutable_sampling()->set_temperature(0.8f);
  sampled.mutable_sampling()->set_repetition_penalty(1.1f);
  sampled.mutable_sampling()->set_seed(101);
  sampled.mutable_sampling()->set_logprobs(2);
  sampled.set_n(2);
  sampled.add_stop("a string that does not come");
  sampled.add_stop("\nthe end of all things");  // held back with every new line
  v1::GenerateRequest mirostat = GreedyRequest("é – ü", kTokens);
  mirostat.mutable_sampling()->set_temperature(0.8f);
  mirostat.mutable_sampling()->set_seed(102);
  mirostat.mutable_sampling()->set_mirostat_tau(3);
  mirostat.mutable_sampling()->set_dry_multiplier(0.8f);
  return {greedy, sampled, mirostat};
}

std::vector<json> Bodies() {
  return {{{"prompt", "JULIET:"},
           {"max_tokens", kTokens},
           {"n", 2},
           {"seed", 103},
           {"temperature", 0.8},
           {"logprobs", 2},
           {"stream", true}},
          {{"prompt", {"KING:", "QUEEN:"}},
           {"max_tokens", kTokens},
           {"echo", true},
           {"temperature", 0},
           {"stop", {"\nthe end of all things"}},
           {"stream", true},
           {"stream_options", {{"include_usage", true}}}}};
}

struct Told {
  Answer answer;
  std::map<uint32_t, std::vector<std::pair<uint32_t, float>>>
      logprobs;  // of every token, by answer
  int calls = 0;
};

// A client that comes back until the answer is whole.
Told AskOverGrpc(const std::string& address, const v1::GenerateRequest& request) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1::Inference::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  Told told;
  v1::ResumeRequest stand;
  const absl::Time until = absl::Now() + absl::Seconds(200);
  do {
    grpc::ClientContext context;
    const auto reader =
        stand.events() == 0 ? stub->Generate(&context, request) : stub->Resume(&context, stand);
    ++told.calls;
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      stand.set_events(stand.events() + 1);
      if (event.has_accepted()) stand.set_request_id(event.accepted().request_id());
      for (const v1::Token& token : event.tokens().tokens()) {
        auto& of = told.logprobs[event.tokens().answer()];
        of.emplace_back(token.id(), token.logprob());
        for (const auto& top : token.top_logprobs()) of.emplace_back(top.id(), top.logprob());
      }
      told.answer.Add(event);
    }
    told.answer.status = reader->Finish();
    if (!told.answer.status.ok()) absl::SleepFor(absl::Milliseconds(50));
  } while (told.answer.status.error_code() == grpc::StatusCode::UNAVAILABLE && absl::Now() < until);
  EXPECT_EQ(told.answer.Fault(), "") << told.answer.status.error_message();
  return told;
}

// As above, by Last-Event-ID. The file has the address while there is one.
std::string AskOverHttp(const std::string& port_file, const json& body) {
  std::string stream;
  std::string id;
  const absl::Time until = absl::Now() + absl::Seconds(200);
  while (stream.find("data: [DONE]\n\n") == std::string::npos && absl::Now() < until) {
    std::string address = ReadFileOrEmpty(port_file);
    if (address.empty()) {
      absl::SleepFor(absl::Milliseconds(20));
      continue;
    }
    address.resize(address.find('\n'));
    HttpTestClient client(address);
    if (id.empty()) {
      client.Post("/v1/completions", body.dump());
    } else {
      stream.resize(stream.rfind("\n\n") + 2);  // half an event is none
      const size_t last = stream.rfind("id: ") + 4;
      client.Send(absl::StrCat("GET /v1/answers/", id, " HTTP/1.1\r\nLast-Event-ID: ",
                               stream.substr(last, stream.find('\n', last) - last), "\r\n\r\n"));
    }
    if (client.ReadHead().status != 200) {
      absl::SleepFor(absl::Milliseconds(50));
      continue;
    }
    for (std::string chunk; !(chunk = client.ReadChunk()).empty();) stream += chunk;
    if (id.empty()) {
      const size_t begin = stream.find("\"id\":\"") + 6;
      id = stream.substr(begin, stream.find('"', begin) - begin);
    }
  }
  return stream;
}

// What the events say together, by choice, without ids and times. Numbers rise by one.
json Together(const std::string& stream) {
  json all = json::object();
  int64_t number = 0;
  for (const absl::string_view event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const std::vector<std::string> lines = absl::StrSplit(event, '\n');
    EXPECT_EQ(lines.size(), 2) << event;
    EXPECT_EQ(lines[0], absl::StrCat("id: ", ++number));
    const std::string data = lines.back().substr(6);
    if (data == "[DONE]") {
      all["done"] = true;
      continue;
    }
    json part = json::parse(data);
    EXPECT_FALSE(part.contains("error")) << part;
    if (part.contains("usage")) all["usage"] = part["usage"];
    for (json& choice : part["choices"]) {
      json& of = all[absl::StrCat("choice ", choice["index"].get<int>())];
      if (of.is_null()) of["text"] = "";
      of["text"].get_ref<std::string&>() += choice["text"].get_ref<const std::string&>();
      if (!choice["finish_reason"].is_null()) of["reason"].push_back(choice["finish_reason"]);
      if (choice["logprobs"].is_null()) continue;
      for (const auto& [name, list] : choice["logprobs"].items()) {
        for (const json& item : list) of[name].push_back(item);
      }
    }
  }
  return all;
}

std::string SkeinOutput(const std::string& address, const std::string& name) {
  Process skein({.name = name,
                 .argv = {"sh", "-c",
                          absl::StrCat("client/skein generate --coordinator=", address,
                                       " --prompt=HAMLET: --max-tokens=", kTokens,
                                       " --temperature=0.8 --seed=104 2>/dev/null")}});
  EXPECT_EQ(skein.Wait(absl::Seconds(200)), 0) << skein.Output();
  return skein.Output();
}

int64_t TokensThatCame(const cluster::v1::ClusterStatus& status) {
  int64_t tokens = 0;
  for (const auto& job : status.jobs()) {
    for (const auto& replica : job.replicas()) tokens += replica.tokens_total();
  }
  return tokens;
}

TEST(JournalTest, AnswersGoOnHoweverOftenTheCoordinatorIsKilled) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/journal");
  const std::string port_file = absl::StrCat(::testing::TempDir(), "/http");
  std::filesystem::remove_all(folder);
  Cluster cluster({.layout = "tp=2,pp=1",
                   .coordinator_flags = {"--journal=" + folder, "--resume-window=100s",
                                         "--http=127.0.0.1:0", "--http-port-file=" + port_file}});
  const std::string home = cluster.scratch() + "/launch";
  std::filesystem::create_directory(home);
  Process launch(
      {.name = "launch",
       .argv = {"bash", "-c",
                "exec scripts/launch.sh --bin . --first-wait 0.2 --longest-wait 0.2 \"$@\"",
                "launch", "--coordinator", cluster.address(), "--ranks", "2"},
       .environment = {{"TMPDIR", home}, {"HOME", home}}});
  ASSERT_TRUE(cluster.WaitForServing(1)) << launch.Output();

  std::vector<Told> want;
  for (const auto& request : Requests()) want.push_back(AskOverGrpc(cluster.address(), request));
  std::vector<json> want_http;
  for (const json& body : Bodies()) want_http.push_back(Together(AskOverHttp(port_file, body)));
  const std::string want_skein = SkeinOutput(cluster.address(), "undisturbed");

  std::vector<std::future<Told>> told;
  for (const auto& request : Requests()) {
    told.push_back(std::async(std::launch::async, AskOverGrpc, cluster.address(), request));
  }
  std::vector<std::future<std::string>> streams;
  for (const json& body : Bodies()) {
    streams.push_back(std::async(std::launch::async, AskOverHttp, port_file, body));
  }
  auto skein = std::async(std::launch::async, SkeinOutput, cluster.address(), "killed");
  for (int kill = 1; kill <= 2; ++kill) {
    // A request for each client and, over HTTP, each prompt.
    const int64_t before = kill == 1 ? TokensThatCame(cluster.Status()) : 0;
    ASSERT_TRUE(cluster.WaitForStatus(
        [&](const auto& status) {
          return status.running_requests() >= 7 && TokensThatCame(status) >= before + 300;
        },
        absl::Seconds(60)))
        << cluster.coordinator().Output();
    std::filesystem::remove(port_file);
    cluster.coordinator().Signal(SIGKILL);
    ASSERT_EQ(cluster.coordinator().Wait(absl::Seconds(10)), 128 + SIGKILL);
    cluster.RestartCoordinator();
    EXPECT_TRUE(cluster.coordinator().WaitForOutput("answers of the journal wait for their clients",
                                                    absl::Seconds(20)));
    ASSERT_TRUE(cluster.WaitForServing(1)) << launch.Output();
  }
  for (size_t i = 0; i < told.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("request ", i));
    const Told got = told[i].get();
    EXPECT_GE(got.calls, 3);
    EXPECT_TRUE(got.answer.status.ok()) << got.answer.status.error_message();
    EXPECT_EQ(got.logprobs, want[i].logprobs);
    for (const auto& [index, answer] : want[i].answer.by_answer) {
      SCOPED_TRACE(absl::StrCat("answer ", index));
      ASSERT_TRUE(got.answer.by_answer.contains(index));
      EXPECT_EQ(got.answer.by_answer.at(index).tokens, answer.tokens);
      EXPECT_EQ(got.answer.by_answer.at(index).text, answer.text);
      EXPECT_EQ(got.answer.by_answer.at(index).reason, answer.reason);
    }
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(Together(streams[i].get()), want_http[i]) << "stream " << i;
  }
  EXPECT_EQ(skein.get(), want_skein);
  EXPECT_GT(want_skein.size(), kTokens);
  launch.Signal(SIGTERM);
  EXPECT_EQ(launch.Wait(absl::Seconds(30)), 128 + SIGTERM);
}

// Though it would go on without its client for as long as that may be away.
TEST(JournalTest, AnInterruptedClientEndsItsAnswer) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/interrupted");
  Cluster cluster({.layout = "tp=2,pp=1",
                   .coordinator_flags = {"--journal=" + folder, "--resume-window=100s"},
                   .worker = "tests/fault/faulty_worker"});
  cluster.StartJob(2, {"--slow=20ms"});  // 18 s for all of it
  ASSERT_TRUE(cluster.WaitForServing(1));
  Process skein({.name = "interrupted",
                 .argv = {"client/skein", "generate", "--coordinator=" + cluster.address(),
                          "--prompt=HAMLET:", "--max-tokens=900", "--ignore-eos", "--json"}});
  ASSERT_TRUE(skein.WaitForOutput("\"tokens\"", absl::Seconds(20))) << skein.Output();
  EXPECT_EQ(cluster.Status().running_requests(), 1);
  skein.Signal(SIGINT);
  EXPECT_EQ(skein.Wait(absl::Seconds(10)), 1);
  EXPECT_TRUE(cluster.WaitForStatus(
      [](const auto& status) { return status.running_requests() == 0; }, absl::Seconds(5)));
}

}  // namespace
}  // namespace skein::testing
