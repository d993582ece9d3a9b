// Many requests over one call give what each gives alone, and outlive the job that began them.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 24; ++i) {
    v1::GenerateRequest request = GreedyRequest(absl::StrCat("Speaker ", i, ":"), 24 + i);
    if (i % 3 == 1) {
      request.mutable_sampling()->set_temperature(1);
      request.mutable_sampling()->set_seed(i);
    }
    if (i % 4 == 2) request.set_n(2);
    if (i % 5 == 3) request.add_stop("\n");
    requests.push_back(request);
  }
  return requests;
}

// Their answers; `on_event` is called with the number of events so far.
std::vector<Answer> GenerateMany(
    Cluster& cluster, const std::vector<v1::GenerateRequest>& requests,
    const std::function<void(int)>& on_event = [](int) {}) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  const auto stream = cluster.inference().GenerateMany(&context);
  for (size_t i = 0; i < requests.size(); ++i) {
    v1::GenerateManyRequest message;
    message.set_request(i);
    *message.mutable_generate() = requests[i];
    EXPECT_TRUE(stream->Write(message));
  }
  stream->WritesDone();
  std::vector<Answer> answers(requests.size());
  v1::GenerateManyResponse response;
  int events = 0;
  while (stream->Read(&response)) {
    for (const v1::RequestEvent& event : response.events()) {
      answers.at(event.request()).Add(event.event());
      on_event(++events);
    }
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return answers;
}

void ExpectEqual(const std::vector<Answer>& answers, const std::vector<Answer>& alone) {
  ASSERT_EQ(answers.size(), alone.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(answers[i].Fault(), "");
    ASSERT_EQ(answers[i].by_answer.size(), alone[i].by_answer.size());
    for (const auto& [index, answer] : alone[i].by_answer) {
      const OneAnswer& same = answers[i].by_answer.at(index);
      EXPECT_EQ(same.tokens, answer.tokens);
      EXPECT_EQ(same.text, answer.text);
      EXPECT_EQ(same.reason, answer.reason);
    }
  }
}

int64_t TokensOf(Cluster& cluster, const std::string& job_id) {
  int64_t tokens = 0;
  const cluster::v1::ClusterStatus status = cluster.Status();
  for (const auto& job : status.jobs()) {
    if (job.job_id() != job_id) continue;
    for (const auto& replica : job.replicas()) tokens += replica.tokens_total();
  }
  return tokens;
}

TEST(OneCallTest, AnswersAreThoseOfRequestsAloneAlsoWhenTheirJobDies) {
  Cluster cluster({.layout = "tp=2",
                   .coordinator_flags = {"--max-num-seqs=8"},
                   .worker = "tests/fault/faulty_worker"});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::vector<v1::GenerateRequest> requests = Requests();
  std::vector<Answer> alone;
  for (const v1::GenerateRequest& request : requests) alone.push_back(cluster.Generate(request));
  ExpectEqual(GenerateMany(cluster, requests), alone);

  // A token takes it 40 ms: it dies when it has given one, in the middle of its answers.
  Process& job = cluster.StartJob(2, {"--slow=20ms"});
  ASSERT_TRUE(cluster.WaitForServing(2));
  const std::string slow = cluster.ServingJob(1).job_id();
  bool killed = false;
  ExpectEqual(GenerateMany(cluster, requests,
                           [&](int) {
                             if (killed || TokensOf(cluster, slow) == 0) return;
                             killed = true;
                             job.Signal(SIGKILL);
                           }),
              alone);
  EXPECT_TRUE(killed);
  EXPECT_GT(cluster.Status().migrations(), 0);
}

}  // namespace
}  // namespace skein::testing
