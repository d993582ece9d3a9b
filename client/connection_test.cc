#include "client/connection.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/tls/certificate_for_tests.h"
#include "base/tls/mutual_tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credentials/credentials.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Something that answers as gRPC does.
class Server {
 public:
  explicit Server(const std::string& address, const std::optional<MutualTls>& tls = std::nullopt) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, ServerCredentialsOf(tls), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  grpc::CallbackGenericService service_;  // a server needs one
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Of this machine; nobody listens there any more.
std::string FreeAddress() { return Server("127.0.0.1:0").address(); }

TEST(ConnectionTest, NoticesSoonThatACoordinatorHasCome) {
  const std::string address = FreeAddress();
  const Connection connection({.address = address});
  // By then gRPC's own back-off is at several seconds, as is one that only begins with less.
  for (int i = 0; i < 120; ++i) connection.Pause(absl::Milliseconds(100));
  EXPECT_FALSE(connection.answers());
  const Server server(address);
  const absl::Time begin = absl::Now();
  while (!connection.answers() && absl::Now() - begin < absl::Seconds(10)) {
    connection.Pause(absl::Milliseconds(200));
  }
  EXPECT_TRUE(connection.answers());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));  // a back-off of 1 s at most
  const absl::Time answered = absl::Now();
  connection.Pause(absl::Milliseconds(150));
  EXPECT_GE(absl::Now() - answered, absl::Milliseconds(149));
}

// What a person is told of a call to this coordinator.
std::string Explained(const Endpoint& coordinator) {
  const Connection connection(coordinator);
  grpc::GenericStub stub(connection.channel());
  grpc::ClientContext context;
  std::promise<grpc::Status> status;
  const grpc::Slice bytes("x");
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  stub.UnaryCall(&context, "/any/Method", {}, &request, &response,
                 [&](const grpc::Status& is) { status.set_value(is); });
  return connection.Explain(status.get_future().get());
}

TEST(ConnectionTest, ExplainsThatTlsMayBeWhatDiffers) {
  const TestCertificate ca("ca", {});
  const TestCertificate own("own", {.issuer = &ca});
  const absl::StatusOr<MutualTls> tls = LoadMutualTls(own.TrustingOnly(ca), absl::Now());
  ASSERT_TRUE(tls.ok()) << tls.status();
  const Server secured("127.0.0.1:0", *tls);
  const Server plain("127.0.0.1:0");
  EXPECT_THAT(
      Explained({secured.address(), *tls}),
      AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("has no such call: it is of another version")));
  EXPECT_THAT(Explained({secured.address(), std::nullopt}),
              HasSubstr("Something listens there: the coordinator may want TLS: --tls-cert"));
  EXPECT_THAT(Explained({plain.address(), *tls}),
              HasSubstr("Something listens there: the coordinator may be without TLS"));
  const TestCertificate other_ca("other-ca", {});
  const absl::StatusOr<MutualTls> other = LoadMutualTls(own.TrustingOnly(other_ca), absl::Now());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(Explained({secured.address(), *other}), HasSubstr("not of --tls-ca"));
  EXPECT_THAT(Explained({FreeAddress(), *tls}), HasSubstr("Start one with"));
}

TEST(ConnectionTest, PausesNoShorterWhereNobodyAnswers) {
  const Connection connection({.address = FreeAddress()});
  const absl::Time begin = absl::Now();
  connection.Pause(absl::Milliseconds(150));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(149));
}

}  // namespace
}  // namespace skein::client
