#include "client/connection.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

// Something that answers as gRPC does.
class Server {
 public:
  explicit Server(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
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
  const Connection connection(address);
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

TEST(ConnectionTest, PausesNoShorterWhereNobodyAnswers) {
  const Connection connection(FreeAddress());
  const absl::Time begin = absl::Now();
  connection.Pause(absl::Milliseconds(150));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(149));
}

}  // namespace
}  // namespace skein::client
