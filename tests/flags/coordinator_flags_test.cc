// What each flag of the coordinator does.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "coordinator/gateway/http_client_for_tests.h"
#include "coordinator/gateway/tls_for_tests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/held.h"
#include "tests/flags/run.h"
#include "tests/flags/tls_files.h"

namespace skein::testing {
namespace {

using coordinator::HttpTestClient;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kCoordinator[] = "coordinator/coordinator";
// Stopped ranks stay members of their jobs.
constexpr char kPatient[] = "--heartbeat-timeout=60s";
constexpr char kPrompt[] = "First Citizen: we are accounted poor citizens, the patricians good.";

// A coordinator, and a job of `ranks`.
class Serving : public Cluster {
 public:
  explicit Serving(const std::vector<std::string>& flags, int ranks = 1)
      : Cluster({.coordinator_flags = flags}) {
    StartJob(ranks);
    EXPECT_TRUE(WaitForServing(1));
  }
  // Of its one replica.
  cluster::v1::ReplicaLoad Load() { return ServingJob(0).replicas(0).load(); }
};

// ---- Places ----

void Model() {
  Cluster cluster({.model = MakeModel("other-bard")});
  EXPECT_EQ(cluster.Status().model_name(), "other-bard");
}

// Both show in the file: it comes, and has the address.
void ListenAndPortFile() {
  const std::string port_file = NewPath("port");
  Process coordinator({.name = "coordinator",
                       .argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.2:0",
                                "--port-file=" + port_file}});
  ASSERT_TRUE(coordinator.WaitForOutput("listening on", absl::Seconds(20)));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(port_file) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  const std::string address = ReadFileOrEmpty(port_file);
  EXPECT_THAT(address, StartsWith("127.0.0.2:"));
  EXPECT_TRUE(Run(kSkein, "status --coordinator=" + address).ok());
}

// What HTTP answers of a coordinator with these flags, on a free port.
HttpTestClient::Response AskOverHttp(const std::string& flag, const std::string& path,
                                     const std::string& body) {
  const std::string port_file = NewPath("http");
  std::vector<std::string> argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.1:0",
                                   "--http=127.0.0.2:0", "--http-port-file=" + port_file};
  if (!flag.empty()) argv.push_back(flag);
  Process coordinator({.name = "coordinator", .argv = argv});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(port_file) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  const std::string address = ReadFileOrEmpty(port_file);
  EXPECT_THAT(address, StartsWith("127.0.0.2:"));
  EXPECT_TRUE(coordinator.WaitForOutput("HTTP on http://127.0.0.2:", absl::Seconds(20)));
  HttpTestClient client(address.substr(0, address.find('\n')));
  body.empty() ? client.Get(path) : client.Post(path, body);
  return client.Read();
}

// A coordinator with HTTP and these flags.
class WithHttp {
 public:
  explicit WithHttp(const std::vector<std::string>& flags,
                    const std::string& listen = "127.0.0.1:0")
      : port_file_(NewPath("http")),
        coordinator_({.name = "coordinator", .argv = Argv(flags, listen)}) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!std::filesystem::exists(port_file_) && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    address_ = ReadFileOrEmpty(port_file_);
    address_ = absl::StrReplaceAll(address_, {{"\n", ""}, {"0.0.0.0", "127.0.0.1"}});
  }
  // The status of GET /v1/models.
  int Models(const std::string& header = "X: y") {
    HttpTestClient client(address_);
    client.Send(absl::StrCat("GET /v1/models HTTP/1.1\r\n", header, "\r\n\r\n"));
    return client.Read().status;
  }
  Process& coordinator() { return coordinator_; }
  const std::string& address() const { return address_; }

 private:
  std::vector<std::string> Argv(const std::vector<std::string>& flags, const std::string& listen) {
    std::vector<std::string> argv = {kCoordinator, "--model=checkpoints/bard",
                                     "--listen=127.0.0.1:0", "--http=" + listen,
                                     "--http-port-file=" + port_file_};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return argv;
  }

  const std::string port_file_;
  Process coordinator_;
  std::string address_;
};

constexpr char kKey[] = "sk-skein-abc";
constexpr char kKeyLine[] =
    "alice sha256:ee1255a31992a2f772fac84ef9ff894b2b2fc43fa0540503ef3c11fabf33c9df";

// SIGHUP reads the file again, and one that is broken changes nothing. Neither keys nor prompts are
// logged.
void ApiKeys() {
  const std::string file = NewPath("keys");
  std::ofstream(file) << kKeyLine << "\n";
  WithHttp http({"--api-keys=" + file, "--log-level=trace"});
  const std::string header = absl::StrCat("Authorization: Bearer ", kKey);
  EXPECT_EQ(http.Models(), 401);
  EXPECT_EQ(http.Models(header), 200);
  std::ofstream(file) << "alice nothing\n";
  http.coordinator().Signal(SIGHUP);
  EXPECT_TRUE(
      http.coordinator().WaitForOutput("the API keys stay as they were", absl::Seconds(20)));
  EXPECT_THAT(http.coordinator().Output(), HasSubstr(file + ": line 1: sha256:"));
  EXPECT_EQ(http.Models(header), 200);
  std::ofstream(file) << kKeyLine << " disabled=yes\n";
  http.coordinator().Signal(SIGHUP);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (http.Models(header) != 403 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(http.Models(header), 403);
  std::ofstream(file) << kKeyLine << "\n";
  http.coordinator().Signal(SIGHUP);
  while (http.Models(header) != 200 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  HttpTestClient client(http.address());
  const std::string body = R"({"prompt": "a rather secret prompt"})";
  for (const char* const path : {"/tokenize", "/v1/completions"}) {
    client.Send(absl::StrCat("POST ", path, " HTTP/1.1\r\n", header,
                             "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                             "\r\n\r\n", body));
    EXPECT_EQ(client.Read().status, path == std::string("/tokenize") ? 200 : 503);
  }
  http.coordinator().Signal(SIGTERM);
  EXPECT_TRUE(http.coordinator().WaitForOutput("drained", absl::Seconds(20)));
  EXPECT_THAT(http.coordinator().Output(), Not(HasSubstr("secret")));
  EXPECT_THAT(http.coordinator().Output(), Not(HasSubstr(kKey)));
}

// What was used before the process was killed counts in the next one.
void UsageDb() {
  const std::string file = NewPath("keys");
  std::ofstream(file) << kKeyLine << " requests-per-minute=1\n";
  const std::string header = absl::StrCat("x-api-key: ", kKey);
  for (const bool kept : {true, false}) {
    const std::vector<std::string> flags =
        kept ? std::vector<std::string>{"--api-keys=" + file, "--usage-db=" + NewPath("usage")}
             : std::vector<std::string>{"--api-keys=" + file};
    {
      WithHttp http(flags);
      EXPECT_EQ(http.Models(header), 200);
      absl::SleepFor(absl::Seconds(2));
      http.coordinator().Signal(SIGKILL);
    }
    EXPECT_EQ(WithHttp(flags).Models(header), kept ? 429 : 200);
  }
}

// Both show: what trusts the CA is served. SIGHUP reads both again, and keeps what it had where
// they are broken. Files that cannot serve end the program before it loads the model.
void HttpCertAndKey() {
  const TestCertificate ca("ca", {});
  const TestCertificate other("other", {});
  const TestCertificate served("served", {.issuer = &ca});
  const std::string flags = absl::StrCat("--http-cert=", served.certificate_file);
  WithHttp http({flags, "--http-key=" + served.key_file});
  const auto status_for = [&](const TestCertificate& trusted) {
    coordinator::TlsTestClient client(http.address(), {.ca_file = trusted.certificate_file});
    if (!client.greeted()) return std::string("refused");
    client.Send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return client.ReadUntil("\r\n");
  };
  EXPECT_EQ(status_for(ca), "HTTP/1.1 200 OK\r\n");
  EXPECT_TRUE(http.coordinator().WaitForOutput("HTTP on https://127.0.0.1:", absl::Seconds(20)));
  std::ofstream(served.key_file) << "broken";
  http.coordinator().Signal(SIGHUP);
  EXPECT_TRUE(http.coordinator().WaitForOutput(
      "the certificate stays as it was: " + served.key_file, absl::Seconds(20)));
  EXPECT_EQ(status_for(ca), "HTTP/1.1 200 OK\r\n");
  const TestCertificate renewed("served", {.issuer = &other});
  http.coordinator().Signal(SIGHUP);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (status_for(other) == "refused" && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(status_for(other), "HTTP/1.1 200 OK\r\n");

  const Outcome wrong =
      Run(kCoordinator, absl::StrCat("--model=checkpoints/none --listen=127.0.0.1:0 "
                                     "--http=127.0.0.1:0 --http-key=",
                                     ca.key_file, " ", flags));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr(absl::StrCat(ca.key_file, ": is not the key of ",
                                                served.certificate_file)));
  EXPECT_EQ(Run(kCoordinator, "--model=checkpoints/bard --http=127.0.0.1:0 " + flags).exit_code, 2);
}

void HttpAllowedHost() {
  WithHttp http({"--http-allowed-host=a.example", "--http-allowed-host=b.example"});
  for (const auto& [host, status] : {std::pair("a.example", 200), std::pair("b.example:80", 200),
                                     std::pair("localhost", 200), std::pair("c.example", 403)}) {
    EXPECT_EQ(http.Models(absl::StrCat("Host: ", host)), status) << host;
  }
  EXPECT_EQ(WithHttp({}).Models("Host: a.example"), 403);
}

void Insecure() {
  const Outcome refused =
      Run(kCoordinator, "--model=checkpoints/bard --listen=127.0.0.1:0 --http=0.0.0.0:0");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--http: 0.0.0.0:0 is not loopback"));
  EXPECT_THAT(refused.err, HasSubstr("add --api-keys FILE"));
  EXPECT_EQ(WithHttp({"--insecure"}, "0.0.0.0:0").Models("Host: whoever.example"), 200);
  const std::string listen = "--model=checkpoints/none --listen=0.0.0.0:0 ";
  const Outcome alone = Run(kCoordinator, listen);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--listen: 0.0.0.0:0 is not loopback"));
  EXPECT_THAT(alone.err, HasSubstr("`scripts/make-certs.sh DIR HOST...` makes certificates"));
  const Outcome meant = Run(kCoordinator, listen + "--insecure");
  EXPECT_EQ(meant.exit_code, 1);
  EXPECT_THAT(meant.err, HasSubstr("0.0.0.0:0 has no TLS"));
  EXPECT_THAT(meant.err, HasSubstr("--model: checkpoints/none"));
  EXPECT_EQ(Run(kCoordinator, listen + TlsFiles().flags()).exit_code, 1);
}

// All three show: who has a certificate of the CA is served, and nobody else. Files that cannot
// serve end the program before it loads the model, and each flag needs the others.
void TlsOfGrpc() {
  const TlsFiles files;
  const std::string port_file = NewPath("port");
  std::vector<std::string> argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.1:0",
                                   "--port-file=" + port_file};
  for (const std::string& flag : TlsFlags(files.good())) argv.push_back(flag);
  Process coordinator({.name = "coordinator", .argv = argv});
  ASSERT_TRUE(coordinator.WaitForOutput(" with TLS; waiting", absl::Seconds(20)));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(port_file) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  const std::string status = absl::StrCat(
      "status --coordinator=", absl::StrReplaceAll(ReadFileOrEmpty(port_file), {{"\n", ""}}));
  EXPECT_TRUE(Run(kSkein, status + files.flags()).ok());
  for (const std::string& wrong : {std::string(), files.with_wrong_certificate()}) {
    EXPECT_EQ(Run(kSkein, status + wrong).exit_code, 1);
    EXPECT_TRUE(coordinator.WaitForOutput("a connection was refused", absl::Seconds(20)));
  }
  const std::string none = "--model=checkpoints/none --listen=127.0.0.1:0";
  const Outcome key = Run(kCoordinator, none + files.with_wrong_key());
  EXPECT_EQ(key.exit_code, 1);
  EXPECT_THAT(key.err, HasSubstr(absl::StrCat(files.stranger.key_file, ": is not the key of ",
                                              files.own.certificate_file)));
  for (const std::string& flag : TlsFlags(files.good())) {
    EXPECT_EQ(Run(kCoordinator, absl::StrCat(none, " ", flag)).exit_code, 2) << flag;
  }
}

// Both show: the file comes, and has the address.
void HttpAndPortFile() {
  const HttpTestClient::Response models = AskOverHttp("", "/v1/models", "");
  EXPECT_EQ(models.status, 200);
  EXPECT_THAT(models.body, HasSubstr("\"id\":\"bard\""));
}

// Both show: the file comes, and has the address; metrics are there, and not with the API.
void MetricsAndPortFile() {
  const std::string port_file = NewPath("metrics");
  const std::string http_file = NewPath("http");
  Process coordinator({.name = "coordinator",
                       .argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.1:0",
                                "--http=127.0.0.1:0", "--http-port-file=" + http_file,
                                "--metrics=127.0.0.2:0", "--metrics-port-file=" + port_file}});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!std::filesystem::exists(port_file) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  const auto metrics_of = [](const std::string& address) {
    HttpTestClient client(address.substr(0, address.find('\n')));
    client.Get("/metrics");
    return client.Read();
  };
  const std::string address = ReadFileOrEmpty(port_file);
  EXPECT_THAT(address, StartsWith("127.0.0.2:"));
  EXPECT_THAT(metrics_of(address).body, HasSubstr("skein_info{model_name=\"bard\""));
  EXPECT_EQ(metrics_of(ReadFileOrEmpty(http_file)).status, 404);
}

void ChatTemplate() {
  constexpr char kChat[] = R"({"messages": [{"role": "user", "content": "hi"}]})";
  EXPECT_EQ(AskOverHttp("", "/apply-template", kChat).body,  // the model's own
            R"({"prompt":"<|endoftext|>JULIET:\nhi\n\nROMEO:\n"})");
  const std::string file = NewPath("template");
  std::ofstream(file) << "{{ messages[0].role }} says {{ messages[0].content }}";
  EXPECT_EQ(AskOverHttp("--chat-template=" + file, "/apply-template", kChat).body,
            R"({"prompt":"user says hi"})");
}

void LogLevel() {
  Cluster said({});
  EXPECT_THAT(said.coordinator().Output(), HasSubstr("listening on"));
  Cluster silent({.coordinator_flags = {"--log-level=off"}});
  EXPECT_THAT(silent.coordinator().Output(), IsEmpty());
}

// ---- Plans ----

void Layout() {
  Serving cluster({"--layout=pp=2"}, 2);
  EXPECT_EQ(cluster.ServingJob(0).plan().layout().pp_size(), 2);
  EXPECT_EQ(Serving({}, 2).ServingJob(0).plan().layout().pp_size(), 1);
}

void ContextLength() {
  Serving cluster({"--context-length=40"});
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 0);
  request.clear_max_tokens();
  request.mutable_sampling()->set_ignore_eos(true);
  EXPECT_EQ(cluster.Generate(request).tokens.size(), 40 - 3);  // the prompt has three
}

void MaxSequences() {
  Serving cluster({"--max-num-seqs=2"});
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 1);
  request.set_n(2);
  EXPECT_TRUE(cluster.Generate(request).status.ok());
  request.set_n(3);
  EXPECT_EQ(cluster.Generate(request).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

// A page of bard's takes 128 KiB: 16 tokens of 8 layers, 2 heads of 64 floats, keys and values.
void KvMemory() {
  Serving cluster({"--kv-memory=16MiB"});
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 2)).status.ok());  // the load is the job's
  EXPECT_EQ(cluster.Load().total_pages(), 128);
}

void SwapMemory() {
  Serving cluster({"--swap-memory=16MiB"});
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 2)).status.ok());
  EXPECT_EQ(cluster.Load().total_swap_pages(), 128);
}

// Other roundings are other log probabilities; the plan's own bytes are half.
void KvDType() {
  Serving wide({});
  Serving narrow({"--kv-dtype=bf16"});
  const std::string request =
      absl::StrCat("--prompt='", kPrompt, "' --temperature=0 --max-tokens=5 --logprobs=3");
  const Asked want = Ask(wide.address(), request);
  const Asked got = Ask(narrow.address(), request);
  ASSERT_EQ(want.tokens.size(), 5);
  ASSERT_EQ(got.tokens.size(), 5);
  EXPECT_NE(got.tokens, want.tokens);
  EXPECT_EQ(Ask(wide.address(), request).tokens, want.tokens);  // all else is the same
  EXPECT_THAT(wide.ServingJob(0).plan_table(), HasSubstr(" 128.0 MiB  "));
  EXPECT_THAT(narrow.ServingJob(0).plan_table(), HasSubstr(" 64.0 MiB  "));
}

// As above, in a pipeline.
void HopDType() {
  Serving wide({"--layout=pp=2"}, 2);
  Serving narrow({"--layout=pp=2", "--hop-dtype=bf16"}, 2);
  const std::string request =
      absl::StrCat("--prompt='", kPrompt, "' --temperature=0 --max-tokens=5 --logprobs=3");
  const Asked want = Ask(wide.address(), request);
  const Asked got = Ask(narrow.address(), request);
  ASSERT_EQ(want.tokens.size(), 5);
  ASSERT_EQ(got.tokens.size(), 5);
  EXPECT_NE(got.tokens, want.tokens);
  EXPECT_EQ(Ask(narrow.address(), request).tokens, got.tokens);
  EXPECT_THAT(wide.ServingJob(0).plan_table(), HasSubstr("activations in f32"));
  EXPECT_THAT(narrow.ServingJob(0).plan_table(), HasSubstr("activations in bf16"));
}

// CPUs compute so anyway: the plan that ranks are given tells it.
void Deterministic() {
  Serving plain({});
  Serving deterministic({"--deterministic"});
  EXPECT_THAT(plain.ServingJob(0).plan_table(), Not(HasSubstr("- deterministic: ")));
  EXPECT_THAT(deterministic.ServingJob(0).plan_table(), HasSubstr("- deterministic: "));
}

// That it reaches the products is quantized_model_test's and gguf_serving_test's.
void Exact() {
  Serving plain({});
  Serving exact({"--exact"});
  EXPECT_THAT(plain.ServingJob(0).plan_table(), Not(HasSubstr("- exact: ")));
  EXPECT_THAT(exact.ServingJob(0).plan_table(), HasSubstr("- exact: "));
}

void MaxNumBatchedTokens() {
  constexpr int kBatchedTokens = 16;
  Serving cluster({absl::StrCat("--max-num-batched-tokens=", kBatchedTokens)});
  const Asked asked =
      Ask(cluster.address(), absl::StrCat("--prompt='", kPrompt, kPrompt, "' --max-tokens=1"));
  const int64_t prompt = asked.prompt_tokens();
  ASSERT_GT(prompt, 2 * kBatchedTokens);
  EXPECT_EQ(cluster.Load().steps(), (prompt + kBatchedTokens - 1) / kBatchedTokens);
}

// What a plan is made for, and a flag by which it says so.
struct Goal {
  const char* flag;
  const char* value;
  const char* says;
};
constexpr Goal kGoals[] = {
    {"--prompt-tokens", "100", "at once, of 100 and 256 tokens"},
    {"--output-tokens", "100", "at once, of 512 and 100 tokens"},
    {"--concurrency", "3", "with 3 requests at once"},
    {"--objective", "latency", "Ranked by the time of an answer"},
    {"--ttft-limit", "1us", "TTFT of at most 1us, which no layout keeps"},
    {"--tpot-limit", "1us", "TPOT of at most 1us, which no layout keeps"},
};

// Lines of the table are folded.
std::string PlanOf(const std::vector<std::string>& flags) {
  return absl::StrReplaceAll(Serving(flags).ServingJob(0).plan_table(), {{"\n  ", " "}});
}

// Means, and the longest one's context.
void GoalOfLengths() {
  const std::string file = NewPath("lengths");
  std::ofstream(file) << "30,10\n10,10\n";
  Serving cluster({absl::StrCat("--lengths=", file)});
  EXPECT_THAT(absl::StrReplaceAll(cluster.ServingJob(0).plan_table(), {{"\n  ", " "}}),
              HasSubstr("at once, of 20 and 10 tokens"));
  v1::GenerateRequest request = GreedyRequest("ROMEO:", 0);
  request.clear_max_tokens();
  request.mutable_sampling()->set_ignore_eos(true);
  EXPECT_EQ(cluster.Generate(request).tokens.size(), 40 - 3);  // the prompt has three
}

void HasGoal(const Goal& goal) {
  EXPECT_THAT(PlanOf({}), Not(HasSubstr(goal.says)));
  EXPECT_THAT(PlanOf({absl::StrCat(goal.flag, "=", goal.value)}), HasSubstr(goal.says));
}

// ---- Requests ----

// A replica with one sequence takes a second request. With room for one in the queue the third
// waits, and the fourth is refused.
void MaxQueue() {
  Serving cluster({"--max-queue=1", "--max-num-seqs=1", kPatient});
  StoppedRank rank(cluster);
  const v1::GenerateRequest request = GreedyRequest("ROMEO:", 2);
  std::vector<std::future<Answer>> taken;
  for (const auto& [running, queued] : {std::pair(1, 0), std::pair(2, 0), std::pair(2, 1)}) {
    taken.push_back(AskInBackground(cluster, request));
    ASSERT_TRUE(WaitForRequests(cluster, running, queued));
  }
  const Answer refused = cluster.Generate(request, absl::Seconds(10));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  rank.Continue();
  for (std::future<Answer>& answer : taken) EXPECT_TRUE(answer.get().status.ok());
}

// The end of a request whose replica is killed before it gives a token.
Answer LostBeforeItsFirstToken(const std::string& flag) {
  Serving cluster({flag, kPatient});
  StoppedRank rank(cluster);
  std::future<Answer> answer = AskInBackground(cluster, GreedyRequest("ROMEO:", 2));
  EXPECT_TRUE(WaitForRequests(cluster, 1, 0));
  rank.Kill();
  return answer.get();
}

void MaxRetries() {
  const Answer answer = LostBeforeItsFirstToken("--max-retries=0");
  EXPECT_FALSE(answer.status.ok());
  EXPECT_THAT(answer.error, HasSubstr("the last 1 replicas gave no token (--max-retries=0)"));
}

void ReplicaWait() {
  const absl::Time begin = absl::Now();
  const Answer answer = LostBeforeItsFirstToken("--replica-wait=100ms");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.error, HasSubstr("100ms (--replica-wait)"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(25));  // the default is 30 s
}

// Without it the silence of 20 s would end the request, in other words.
void DrainTimeout() {
  Serving cluster({"--drain-timeout=1ms", "--heartbeat-timeout=20s"});
  StoppedRank rank(cluster);
  std::future<Answer> answer = AskInBackground(cluster, GreedyRequest("ROMEO:", 2));
  ASSERT_TRUE(WaitForRequests(cluster, 1, 0));
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_THAT(answer.get().error, HasSubstr("its drain timeout passed"));
}

// The default, 3 s, would name a shorter silence.
void HeartbeatTimeout() {
  Serving cluster({"--heartbeat-timeout=5s"});
  StoppedRank rank(cluster);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("has been silent for", absl::Seconds(30)));
  EXPECT_THAT(cluster.coordinator().Output(),
              ContainsRegex("has been silent for ([5-9]|[1-9][0-9])[0-9]{3} ms"));
}

FlagCases CoordinatorCases() {
  FlagCases cases = {
      HelpCase(kCoordinator, ""),
      VersionCase(kCoordinator),
      {{"", "--model"}, Model},
      {{"", "--listen"}, ListenAndPortFile},
      {{"", "--port-file"}, ListenAndPortFile},
      {{"", "--http"}, HttpAndPortFile},
      {{"", "--http-port-file"}, HttpAndPortFile},
      {{"", "--metrics"}, MetricsAndPortFile},
      {{"", "--metrics-port-file"}, MetricsAndPortFile},
      {{"", "--http-allowed-host"}, HttpAllowedHost},
      {{"", "--http-cert"}, HttpCertAndKey},
      {{"", "--http-key"}, HttpCertAndKey},
      {{"", "--api-keys"}, ApiKeys},
      {{"", "--usage-db"}, UsageDb},
      {{"", "--insecure"}, Insecure},
      {{"", "--tls-cert"}, TlsOfGrpc},
      {{"", "--tls-key"}, TlsOfGrpc},
      {{"", "--tls-ca"}, TlsOfGrpc},
      {{"", "--chat-template"}, ChatTemplate},
      {{"", "--log-level"}, LogLevel},
      {{"", "--layout"}, Layout},
      {{"", "--context-length"}, ContextLength},
      {{"", "--max-num-seqs"}, MaxSequences},
      {{"", "--kv-memory"}, KvMemory},
      {{"", "--kv-dtype"}, KvDType},
      {{"", "--hop-dtype"}, HopDType},
      {{"", "--deterministic"}, Deterministic},
      {{"", "--exact"}, Exact},
      {{"", "--swap-memory"}, SwapMemory},
      {{"", "--max-num-batched-tokens"}, MaxNumBatchedTokens},
      {{"", "--max-queue"}, MaxQueue},
      {{"", "--max-retries"}, MaxRetries},
      {{"", "--replica-wait"}, ReplicaWait},
      {{"", "--drain-timeout"}, DrainTimeout},
      {{"", "--heartbeat-timeout"}, HeartbeatTimeout},
  };
  cases.push_back({{"", "--lengths"}, GoalOfLengths});
  for (const Goal& goal : kGoals) cases.push_back({{"", goal.flag}, [&goal] { HasGoal(goal); }});
  return cases;
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  RegisterFlagTests(kCoordinator, Concatenated({CoordinatorCases(), ConfigCases(kCoordinator)}));
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) { return skein::testing::Main(argc, argv); }
