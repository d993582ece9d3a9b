// Serves requests over gRPC for tests, by a job of one rank that answers by a script.
#pragma once

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/rpc/test_coordinator.h"
#include "gtest/gtest.h"
#include "serving/output.h"
#include "serving/request.h"

namespace skein::coordinator {

class GenerateTest : public ::testing::Test {
 protected:
  // Starts a job of one rank that answers every request with `text`, or leaves it to the test.
  std::unique_ptr<FakeJob> Serve(TestCoordinator& coordinator, const std::string& text = "",
                                 const std::string& id = "job") {
    FakeJobOptions options{.coordinator = coordinator.address(), .job_id = id};
    if (!text.empty()) {
      options.script = [text](const serving::Request& request) {
        const bool full = std::ssize(text) == request.max_tokens;
        return std::vector<serving::AnswerOutput>{TextOutput(
            request.id, text, full ? serving::Finish::kMaxTokens : serving::Finish::kEos)};
      };
    }
    auto job = std::make_unique<FakeJob>(std::move(options));
    EXPECT_TRUE(coordinator.WaitUntilServing());
    return job;
  }
};

}  // namespace skein::coordinator
