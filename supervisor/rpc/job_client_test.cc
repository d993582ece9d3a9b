// The client against a coordinator that says what the test wants.
#include "supervisor/rpc/job_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/tls/certificate_for_tests.h"
#include "base/tls/job_key.h"
#include "base/tls/mutual_tls.h"
#include "gtest/gtest.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/credentials/credentials.h"

namespace skein::supervisor {
namespace {

namespace wire = ::skein::cluster::v1;
using State = JobInfo::State;

constexpr absl::Duration kLong = absl::Seconds(20);

class FakeCoordinator final : public wire::Cluster::CallbackService {
 public:
  using Respond = std::function<grpc::Status(const wire::GetJobRequest&, wire::JobStatus&)>;

  explicit FakeCoordinator(Respond respond, const std::optional<MutualTls>& tls = std::nullopt)
      : respond_(std::move(respond)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", ServerCredentialsOf(tls), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* /*context*/,
                                   const wire::GetJobRequest* request,
                                   wire::JobStatus* job) override {
    // One that is silent ends with its call.
    class Reactor final : public grpc::ServerUnaryReactor {
     public:
      explicit Reactor(bool silent) : silent_(silent) {}
      void OnCancel() override {
        if (silent_) Finish(grpc::Status::CANCELLED);
      }
      void OnDone() override { delete this; }

     private:
      const bool silent_;
    };
    auto* const reactor = new Reactor(respond_ == nullptr);
    if (respond_ != nullptr) reactor->Finish(respond_(*request, *job));
    return reactor;
  }

  const Respond respond_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

JobInfo Ask(const std::string& address, absl::Duration timeout = kLong,
            const std::optional<MutualTls>& tls = std::nullopt) {
  JobClient client(address, tls);
  std::promise<JobInfo> answer;
  client.Query({.id = "0123456789abcdef", .secret = "secret"}, timeout,
               [&](JobInfo info) { answer.set_value(std::move(info)); });
  return answer.get_future().get();
}

JobInfo AskOne(const grpc::Status& status, const std::string& state) {
  const FakeCoordinator coordinator([&](const auto& request, wire::JobStatus& job) {
    EXPECT_EQ(request.job_id(), "0123456789abcdef");
    EXPECT_EQ(request.job_key(), PublicJobKey("secret"));
    job.set_state(state);
    job.set_detail("rank 1\nfell silent");
    return status;
  });
  return Ask(coordinator.address());
}

TEST(JobClientTest, SpeaksTlsWhereItIsTold) {
  const TestCertificate ca("ca", {});
  const TestCertificate own("own", {.issuer = &ca});
  const absl::StatusOr<MutualTls> tls = LoadMutualTls(own.TrustingOnly(ca), absl::Now());
  ASSERT_TRUE(tls.ok()) << tls.status();
  const FakeCoordinator coordinator(
      [](const auto&, wire::JobStatus& job) {
        job.set_state("serving");
        return grpc::Status::OK;
      },
      *tls);
  EXPECT_EQ(Ask(coordinator.address(), kLong, *tls).state, State::kServing);
  const JobInfo plain = Ask(coordinator.address());
  EXPECT_EQ(plain.state, State::kNoAnswer);  // the supervisor starts it again: something is wrong
  EXPECT_NE(plain.detail.find("--tls-cert"), std::string::npos) << plain.detail;
}

TEST(JobClientTest, KnowsAllStates) {
  EXPECT_EQ(AskOne(grpc::Status::OK, "waiting for ranks").state, State::kWaiting);
  EXPECT_EQ(AskOne(grpc::Status::OK, "loading").state, State::kLoading);
  EXPECT_EQ(AskOne(grpc::Status::OK, "serving").state, State::kServing);
  EXPECT_EQ(AskOne(grpc::Status::OK, "draining").state, State::kServing);
  EXPECT_EQ(AskOne(grpc::Status::OK, "ended").state, State::kEnded);
  EXPECT_EQ(AskOne(grpc::Status::OK, "of a later version").state, State::kCannotTell);
  const JobInfo lost = AskOne(grpc::Status::OK, "lost");
  EXPECT_EQ(lost.state, State::kLost);
  EXPECT_EQ(lost.detail, "rank 1\\x0afell silent");  // one line
}

TEST(JobClientTest, KnowsAllErrors) {
  using grpc::StatusCode;
  EXPECT_EQ(AskOne({StatusCode::NOT_FOUND, ""}, "").state, State::kUnknown);
  EXPECT_EQ(AskOne({StatusCode::UNIMPLEMENTED, "what?"}, "").state, State::kCannotTell);
  EXPECT_EQ(AskOne({StatusCode::INVALID_ARGUMENT, "what?"}, "").state, State::kCannotTell);
  EXPECT_EQ(AskOne({StatusCode::UNAVAILABLE, "going"}, "").state, State::kNoAnswer);
}

TEST(JobClientTest, NobodyListens) {
  std::string address;
  {
    address = FakeCoordinator(nullptr).address();
  }
  EXPECT_EQ(Ask(address).state, State::kGone);
}

// The only channel of its process ends right behind an answer: gRPC's threads end with it.
TEST(JobClientTest, ItMayEndAtOnceAfterAnAnswer) {
  for (int i = 0; i < 500; ++i) EXPECT_EQ(Ask("127.0.0.1:1").state, State::kGone);
}

TEST(JobClientTest, ASilentOneCostsNoMoreThanTheTimeout) {
  const FakeCoordinator coordinator(nullptr);
  const absl::Time before = absl::Now();
  EXPECT_EQ(Ask(coordinator.address(), absl::Milliseconds(100)).state, State::kNoAnswer);
  EXPECT_GE(absl::Now() - before, absl::Milliseconds(99));  // gRPC counts whole milliseconds
  EXPECT_LT(absl::Now() - before, kLong / 2);
}

TEST(JobClientTest, ItsEndAnswersWhatIsAsked) {
  const FakeCoordinator coordinator(nullptr);
  bool answered = false;
  const absl::Time before = absl::Now();
  {
    JobClient client(coordinator.address(), std::nullopt);
    client.Query({}, kLong, [&](const JobInfo&) { answered = true; });
  }
  EXPECT_TRUE(answered);
  EXPECT_LT(absl::Now() - before, kLong / 2);
}

}  // namespace
}  // namespace skein::supervisor
