// Mutual TLS on the coordinator's port: who is served, who is refused, and what the log says.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/log/captured_log.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "base/tls/mutual_tls.h"
#include "coordinator/rpc/refusals.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credentials/credentials.h"

namespace skein::coordinator {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// As a file may hold it that nobody looked at.
MutualTls Unchecked(const TestCertificate& own, const TestCertificate& ca) {
  return {ReadFileOrEmpty(own.certificate_file), ReadFileOrEmpty(own.key_file),
          ReadFileOrEmpty(ca.certificate_file)};
}

class GrpcTlsTest : public ::testing::Test {
 protected:
  Daemon::Options WithTls() {
    Daemon::Options options = TestOptions();
    options.server.tls = Unchecked(server_, ca_);
    return options;
  }
  // How a client with this fares, on a connection of its own.
  grpc::Status Call(const std::optional<MutualTls>& tls, const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = cluster::v1::Cluster::NewStub(
        grpc::CreateCustomChannel(address, ChannelCredentialsOf(tls), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    cluster::v1::ClusterStatus status;
    return stub->GetStatus(&context, {}, &status);
  }
  grpc::Status Call(const std::optional<MutualTls>& tls) {
    return Call(tls, coordinator_.address());
  }
  // Refused, and the log says why; others go on.
  void ExpectRefused(const std::optional<MutualTls>& tls, const std::string& why) {
    const CapturedLog log;
    const grpc::Status status = Call(tls);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_NE(TlsHint(status.error_message(), tls.has_value()), "") << status.error_message();
    EXPECT_TRUE(TestCoordinator::WaitFor([&] {
      return ContainsRegex(log.text(), "a connection was refused, its TLS failed: .*" + why);
    })) << log.text();
    EXPECT_TRUE(Call(client_tls_).ok());
  }
  static bool ContainsRegex(const std::string& text, const std::string& pattern) {
    return ::testing::Value(text, ::testing::ContainsRegex(pattern));
  }

  const TestCertificate ca_{"ca", {}};
  const TestCertificate other_ca_{"other-ca", {}};
  const TestCertificate server_{"server", {.issuer = &ca_, .usage = "serverAuth"}};
  const TestCertificate client_{"client", {.issuer = &ca_, .usage = "clientAuth"}};
  const MutualTls client_tls_ = Unchecked(client_, ca_);
  TestCoordinator coordinator_{WithTls(), MakeFakeModel(), client_tls_};
};

TEST_F(GrpcTlsTest, ServesThoseWithCertificates) {
  FakeJob job({.coordinator = coordinator_.address(),
               .tls = client_tls_,
               .script = [](const serving::Request& request) {
                 return std::vector{TextOutput(request.id, "good morrow")};
               }});
  ASSERT_TRUE(coordinator_.WaitUntilServing());
  const Answer answer = coordinator_.Ask(PromptRequest("hi"));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text(), "good morrow");
}

TEST_F(GrpcTlsTest, RefusesPlainClients) { ExpectRefused(std::nullopt, "wrong version number"); }

TEST_F(GrpcTlsTest, RefusesClientsWithoutACertificate) {
  ExpectRefused(MutualTls{.ca = client_tls_.ca}, "peer did not return a certificate");
}

TEST_F(GrpcTlsTest, RefusesCertificatesOfAnotherCa) {
  const TestCertificate stranger("stranger", {.issuer = &other_ca_});
  ExpectRefused(Unchecked(stranger, ca_), "certificate verify failed");
}

TEST_F(GrpcTlsTest, RefusesCertificatesThatSignThemselves) {
  const TestCertificate stranger("stranger", {});
  ExpectRefused(Unchecked(stranger, ca_), "certificate verify failed");
}

TEST_F(GrpcTlsTest, RefusesExpiredCertificates) {
  const TestCertificate expired("expired", {.ends_after_s = -1, .issuer = &ca_});
  ExpectRefused(Unchecked(expired, ca_), "certificate verify failed");
}

TEST_F(GrpcTlsTest, RefusesCertificatesOfServersAlone) {
  ExpectRefused(Unchecked(server_, ca_), "certificate verify failed");
}

// The other way round it is the client who refuses, and says why.
TEST_F(GrpcTlsTest, ClientsRefuseAnotherCa) {
  const grpc::Status status = Call(Unchecked(client_, other_ca_));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("certificate verify failed"));
  EXPECT_NE(TlsHint(status.error_message(), true), "");
}

TEST_F(GrpcTlsTest, ClientsRefuseTheNameOfAnotherHost) {
  // The certificate names 127.0.0.1, and localhost.
  const std::string port = coordinator_.address().substr(coordinator_.address().find(':'));
  EXPECT_TRUE(Call(client_tls_, "localhost" + port).ok());
  Daemon::Options options = WithTls();
  options.server.listen = options.http->listen = "127.0.0.2:0";
  grpc::Status status;
  {
    const TestCoordinator elsewhere(options, MakeFakeModel(), client_tls_);
    status = Call(client_tls_, elsewhere.address());
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(TlsHint(status.error_message(), true), "") << status.error_message();
}

// A stranger on the worker port gets no plan, and the job of the others does not see it.
TEST_F(GrpcTlsTest, StrangersAttachNoRank) {
  const TestCertificate unknown("unknown", {.issuer = &other_ca_});
  for (const std::optional<MutualTls>& tls :
       {std::optional<MutualTls>(), {Unchecked(unknown, ca_)}}) {
    const auto stub = cluster::v1::Cluster::NewStub(
        grpc::CreateChannel(coordinator_.address(), ChannelCredentialsOf(tls)));
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    cluster::v1::WorkerMessage hello;
    hello.mutable_hello()->set_version("test");
    stream->Write(hello);
    cluster::v1::CoordinatorMessage message;
    EXPECT_FALSE(stream->Read(&message));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(coordinator_.Status().jobs_size(), 0);
  FakeJob job({.coordinator = coordinator_.address(), .tls = client_tls_});
  EXPECT_TRUE(coordinator_.WaitUntilServing());
}

TEST_F(GrpcTlsTest, APlainCoordinatorRefusesTls) {
  const TestCoordinator plain;
  const grpc::Status status = Call(client_tls_, plain.address());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(TlsHint(status.error_message(), true), "") << status.error_message();
}

TEST_F(GrpcTlsTest, NoHintWhereNobodyListens) {
  for (const std::optional<MutualTls>& tls : {std::optional<MutualTls>(), {client_tls_}}) {
    const grpc::Status status = Call(tls, "127.0.0.1:1");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(TlsHint(status.error_message(), tls.has_value()), "") << status.error_message();
  }
}

TEST(RefusalsTest, SaysSomeAndCountsTheRest) {
  const CapturedLog log;
  Refusals refusals;
  const absl::Time begin = absl::Now();
  const auto fail = [&](int reason, absl::Time when) {
    refusals.Say(absl::StrCat(reason), absl::StrCat("its TLS failed: ", reason), when);
  };
  for (int i = 0; i < 40; ++i) fail(1, begin);
  fail(2, begin);  // another reason is not hidden
  EXPECT_THAT(log.text(), HasSubstr("its TLS failed: 2; 30 others before it"));
  const std::vector<std::string> parts = absl::StrSplit(log.text(), "its TLS failed: 1");
  EXPECT_EQ(parts.size(), 10 + 1);
  fail(1, begin + absl::Seconds(10));
  EXPECT_THAT(log.text(), EndsWith("its TLS failed: 1\n"));
}

}  // namespace
}  // namespace skein::coordinator
