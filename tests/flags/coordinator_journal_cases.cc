// Flags of the coordinator's journal of answers.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/flags/coordinator_cases.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

// What Generate tells, or, with an id, Resume.
std::vector<v1::GenerateEvent> Events(Cluster& cluster, const std::string& id,
                                      grpc::StatusCode* code) {
  grpc::ClientContext context;
  v1::ResumeRequest resume;
  resume.set_request_id(id);
  const auto reader = id.empty()
                          ? cluster.inference().Generate(&context, GreedyRequest("ROMEO:", 5))
                          : cluster.inference().Resume(&context, resume);
  std::vector<v1::GenerateEvent> events;
  for (v1::GenerateEvent event; reader->Read(&event);) events.push_back(event);
  *code = reader->Finish().error_code();
  return events;
}

// A coordinator that was killed has told an answer, which the next one knows.
void JournalFlag() {
  for (const bool kept : {true, false}) {
    Cluster cluster({.coordinator_flags = kept ? std::vector{"--journal=" + NewPath("journal")}
                                               : std::vector<std::string>()});
    cluster.StartJob(1);
    ASSERT_TRUE(cluster.WaitForServing(1));
    grpc::StatusCode code;
    const auto told = Events(cluster, "", &code);
    ASSERT_EQ(code, grpc::StatusCode::OK);
    const v1::Accepted& accepted = told[0].accepted();
    EXPECT_EQ(accepted.resume_window_seconds(), kept ? 60 : 0);
    cluster.coordinator().Signal(SIGKILL);
    ASSERT_TRUE(cluster.coordinator().Wait(absl::Seconds(10)).has_value());
    cluster.RestartCoordinator();
    cluster.Status();  // until it answers
    const auto again = Events(cluster, accepted.request_id(), &code);
    EXPECT_EQ(code, kept ? grpc::StatusCode::OK : grpc::StatusCode::NOT_FOUND);
    ASSERT_EQ(again.size(), kept ? told.size() : 0);
    for (size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i].SerializeAsString(), told[i].SerializeAsString());
    }
  }
}

void ResumeWindow() {
  Cluster cluster({.coordinator_flags = {"--journal=" + NewPath("journal"), "--resume-window=2s"}});
  cluster.StartJob(1);
  ASSERT_TRUE(cluster.WaitForServing(1));
  grpc::StatusCode code;
  const auto told = Events(cluster, "", &code);
  ASSERT_EQ(code, grpc::StatusCode::OK);
  const std::string& id = told[0].accepted().request_id();
  EXPECT_EQ(told[0].accepted().resume_window_seconds(), 2);
  EXPECT_EQ(Events(cluster, id, &code).size(), told.size());
  absl::SleepFor(absl::Seconds(3));
  EXPECT_EQ(Events(cluster, id, &code).size(), 0);
  EXPECT_EQ(code, grpc::StatusCode::NOT_FOUND);
}

}  // namespace

FlagCases JournalCases() {
  return {{{"", "--journal"}, JournalFlag}, {{"", "--resume-window"}, ResumeWindow}};
}

}  // namespace skein::testing
