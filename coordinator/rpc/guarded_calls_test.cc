// Real clients of gRPC behind the guard of HTTP/2: what they may do goes on as without it.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host_port.h"
#include "base/log/captured_log.h"
#include "base/test_util.h"
#include "base/tls/certificate_for_tests.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credentials/credentials.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Calls of Attach that say nothing, all over one connection.
class SilentCalls {
 public:
  SilentCalls(const std::shared_ptr<grpc::Channel>& channel, size_t count)
      : stub_(cluster::v1::Cluster::NewStub(channel)), contexts_(count) {
    for (size_t i = 0; i < count; ++i) {
      calls_.push_back(stub_->AsyncAttach(&contexts_[i], &queue_, Tag(i)));
    }
  }
  // Cancels all, and waits for their ends.
  void Cancel() {
    std::vector<grpc::Status> ends(calls_.size());
    for (grpc::ClientContext& context : contexts_) context.TryCancel();
    for (size_t i = 0; i < calls_.size(); ++i) calls_[i]->Finish(&ends[i], Tag(i));
    void* tag = nullptr;
    bool ok = false;
    for (size_t left = 2 * calls_.size(); left > 0; --left) {
      ASSERT_TRUE(queue_.Next(&tag, &ok));
    }
    for (const grpc::Status& end : ends) {
      EXPECT_EQ(end.error_code(), grpc::StatusCode::CANCELLED) << end.error_message();
    }
  }

 private:
  static void* Tag(size_t number) { return reinterpret_cast<void*>(number + 1); }

  const std::unique_ptr<cluster::v1::Cluster::Stub> stub_;
  grpc::CompletionQueue queue_;
  std::vector<grpc::ClientContext> contexts_;
  std::vector<std::unique_ptr<
      grpc::ClientAsyncReaderWriter<cluster::v1::WorkerMessage, cluster::v1::CoordinatorMessage>>>
      calls_;
};

TEST(GuardedCallsTest, ManyCallsMayBeCancelledAtOnce) {
  const CapturedLog log;
  {
    TestCoordinator coordinator;
    for (int round = 0; round < 4; ++round) {
      SilentCalls calls(coordinator.channel(), 256);
      absl::SleepFor(absl::Milliseconds(50));
      calls.Cancel();
      EXPECT_EQ(coordinator.Status().jobs_size(), 0);
    }
  }
  EXPECT_THAT(log.text(), Not(HasSubstr("reset")));
  EXPECT_THAT(log.text(), Not(HasSubstr("cut off")));
}

// gRPC's clients are told how many there may be.
TEST(GuardedCallsTest, MoreCallsThanStreamsWaitForOneAnother) {
  const CapturedLog log;
  {
    TestCoordinator coordinator;
    SilentCalls calls(coordinator.channel(), 1100);
    absl::SleepFor(absl::Milliseconds(300));
    calls.Cancel();
    EXPECT_EQ(coordinator.Status().jobs_size(), 0);
  }
  EXPECT_THAT(log.text(), Not(HasSubstr("cut off")));
}

MutualTls Read(const TestCertificate& own, const TestCertificate& ca) {
  return {ReadFileOrEmpty(own.certificate_file), ReadFileOrEmpty(own.key_file),
          ReadFileOrEmpty(ca.certificate_file)};
}

grpc::Status GetStatus(grpc::ChannelInterface& channel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  cluster::v1::ClusterStatus status;
  return cluster::v1::Cluster::NewStub(
             std::shared_ptr<grpc::ChannelInterface>(&channel, [](auto*) {}))
      ->GetStatus(&context, {}, &status);
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address, const MutualTls& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, ChannelCredentialsOf(tls), arguments);
}

class GuardedTlsTest : public ::testing::Test {
 protected:
  const TestCertificate ca_{"ca", {}};
  const TestCertificate server_{"server", {.issuer = &ca_, .usage = "serverAuth"}};
  const TestCertificate client_{"client", {.issuer = &ca_, .usage = "clientAuth"}};
};

TEST_F(GuardedTlsTest, MessagesOfManyMebibytesArrive) {
  Daemon::Options options = TestOptions();
  options.server.tls = Read(server_, ca_);
  TestCoordinator coordinator(options, MakeFakeModel(), Read(client_, ca_));
  grpc::ClientContext context;
  const auto stream = cluster::v1::Cluster::NewStub(coordinator.channel())->Attach(&context);
  cluster::v1::WorkerMessage hello;
  hello.mutable_hello()->set_job_id(std::string(30 << 20, 'x'));
  stream->Write(hello);
  const grpc::Status end = stream->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.error_message(), HasSubstr("job_id: 31457280 bytes"));
}

TEST_F(GuardedTlsTest, NewCertificatesAreOfNewConnections) {
  Daemon::Options options = TestOptions();
  options.server.tls = Read(server_, ca_);
  Daemon daemon(options, &RealClock::Get());
  SKEIN_ASSERT_OK(daemon.Start());
  const auto before = NewChannel(daemon.address(), Read(client_, ca_));
  EXPECT_TRUE(GetStatus(*before).ok());

  const TestCertificate other_ca("other-ca", {});
  const TestCertificate other_server("other", {.issuer = &other_ca});
  const TestCertificate other_client("other-client", {.issuer = &other_ca});
  SKEIN_ASSERT_OK(daemon.UseCertificates(Read(other_server, other_ca)));
  EXPECT_TRUE(GetStatus(*before).ok());
  EXPECT_TRUE(GetStatus(*NewChannel(daemon.address(), Read(other_client, other_ca))).ok());
  EXPECT_FALSE(GetStatus(*NewChannel(daemon.address(), Read(client_, ca_))).ok());

  MutualTls broken = Read(server_, ca_);
  broken.ca = "nothing";
  EXPECT_THAT(daemon.UseCertificates(broken),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the CA")));
  EXPECT_TRUE(GetStatus(*NewChannel(daemon.address(), Read(other_client, other_ca))).ok());
  daemon.Shutdown(absl::ZeroDuration());
}

TEST(GuardedCallsTest, AServerEndsWithConnectionsOfEveryKind) {
  Daemon daemon(TestOptions(), &RealClock::Get());
  SKEIN_ASSERT_OK(daemon.Start());
  SKEIN_ASSERT_OK_AND_ASSIGN(const HostPort address, ParseHostPort(daemon.address()));
  sockaddr_in to = {.sin_family = AF_INET,
                    .sin_port = htons(static_cast<uint16_t>(address.port)),
                    .sin_addr = {htonl(INADDR_LOOPBACK)}};
  constexpr char kHello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
  std::vector<int> sockets;
  for (const size_t said : {size_t{0}, size_t{10}, sizeof(kHello)}) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(sockets.back(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    ASSERT_EQ(send(sockets.back(), kHello, said, MSG_NOSIGNAL), static_cast<ssize_t>(said));
  }
  SilentCalls calls(grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials()), 10);
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Time begin = absl::Now();
  daemon.Shutdown(absl::Milliseconds(500));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  for (const int fd : sockets) {
    const timeval patience = {.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    std::vector<char> bytes(4096);
    ssize_t got = 1;
    while (got > 0) got = recv(fd, bytes.data(), bytes.size(), 0);
    EXPECT_TRUE(got == 0 || errno == ECONNRESET);
    close(fd);
  }
}

}  // namespace
}  // namespace skein::coordinator
