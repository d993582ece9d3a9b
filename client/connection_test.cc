#include "client/connection.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

// A port of this machine where nobody listens.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

TEST(ConnectionTest, NoticesSoonThatACoordinatorHasCome) {
  const std::string address = absl::StrCat("127.0.0.1:", FreePort());
  const Connection connection(address);
  for (int i = 0; i < 3; ++i) connection.Pause(absl::Milliseconds(100));
  EXPECT_FALSE(connection.answers());
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  grpc::CallbackGenericService service;  // a server needs one
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
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
  const Connection connection(absl::StrCat("127.0.0.1:", FreePort()));
  const absl::Time begin = absl::Now();
  connection.Pause(absl::Milliseconds(150));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(149));
}

}  // namespace
}  // namespace skein::client
