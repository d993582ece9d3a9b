#include "tests/cluster/running_answer.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace skein::testing {

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

RunningAnswer::RunningAnswer(Cluster& cluster) {
  thread_ = std::thread([this, &cluster] {
    grpc::ClientContext context;
    auto reader = cluster.inference().Generate(&context, GreedyRequest("ROMEO:", kLong));
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      answer_.Add(event);
      if (event.has_tokens()) tokens_ += event.tokens().tokens_size();
    }
    answer_.status = reader->Finish();
    EXPECT_EQ(answer_.Fault(), "");
    done_ = absl::Now();
  });
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (tokens_ < 4 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(tokens_, 4);
}

RunningAnswer::~RunningAnswer() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace skein::testing
