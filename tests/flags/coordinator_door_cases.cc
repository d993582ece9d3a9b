// Flags of the coordinator for HTTP and metrics, and for who may come in.
#include <signal.h>

#include <filesystem>
#include <fstream>
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
#include "tests/flags/coordinator_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/tls_files.h"

namespace skein::testing {
namespace {

using coordinator::HttpTestClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

// SIGHUP reads the files again, and keeps what it had where they are broken.
void ReloadTls(const TlsFiles& files, Process& coordinator, const std::string& status) {
  const std::string key = ReadFileOrEmpty(files.own.key_file);
  std::ofstream(files.own.key_file) << "broken";
  coordinator.Signal(SIGHUP);
  EXPECT_TRUE(coordinator.WaitForOutput(
      "the certificates of gRPC stay as they were: " + files.own.key_file, absl::Seconds(20)));
  std::ofstream(files.own.key_file) << key;
  EXPECT_TRUE(Run(kSkein, status + files.flags()).ok());
  // Strangers are those who are trusted then.
  const std::string old_ca = NewPath("old-ca");
  std::filesystem::copy_file(files.ca.certificate_file, old_ca);
  std::ofstream(files.ca.certificate_file) << ReadFileOrEmpty(files.other_ca.certificate_file);
  coordinator.Signal(SIGHUP);
  EXPECT_TRUE(coordinator.WaitForOutput("were read again", absl::Seconds(20)));
  for (const TestCertificate* client : {&files.stranger, &files.own}) {
    std::string flags;
    for (const std::string& flag : TlsFlags({client->certificate_file, client->key_file, old_ca})) {
      flags += " " + flag;
    }
    EXPECT_EQ(Run(kSkein, status + flags).exit_code, client == &files.stranger ? 0 : 1);
  }
}

// One that has nothing to read again says so, and goes on.
void SighupWithoutFiles() {
  Process coordinator({.name = "plain",
                       .argv = {kCoordinator, "--model=checkpoints/bard", "--listen=127.0.0.1:0"}});
  ASSERT_TRUE(coordinator.WaitForOutput("waiting for workers", absl::Seconds(20)));
  coordinator.Signal(SIGHUP);
  EXPECT_TRUE(coordinator.WaitForOutput("there is nothing to read again", absl::Seconds(20)));
  coordinator.Signal(SIGTERM);
  EXPECT_TRUE(coordinator.WaitForOutput("drained", absl::Seconds(20)));
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
  ReloadTls(files, coordinator, status);
  SighupWithoutFiles();
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

}  // namespace

FlagCases DoorCases() {
  const std::function<void()> tls = RunOnce(TlsOfGrpc);
  return {
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
      {{"", "--tls-cert"}, tls},
      {{"", "--tls-key"}, tls},
      {{"", "--tls-ca"}, tls},
      {{"", "--chat-template"}, ChatTemplate},
  };
}

}  // namespace skein::testing
