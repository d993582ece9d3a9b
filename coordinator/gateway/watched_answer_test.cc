#include "coordinator/gateway/watched_answer.h"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Gives these parts, then throws.
class Breaks final : public HttpAnswer {
 public:
  explicit Breaks(std::vector<Part> parts) : parts_(std::move(parts)) {}
  Part Next() override {
    if (next_ == parts_.size()) throw std::runtime_error("broken");
    return parts_[next_++];
  }

 private:
  const std::vector<Part> parts_;
  size_t next_ = 0;
};

class WatchedAnswerTest : public ::testing::Test {
 protected:
  std::unique_ptr<WatchedAnswer> Watched(std::vector<HttpAnswer::Part> parts) {
    return std::make_unique<WatchedAnswer>(
        std::make_unique<Breaks>(std::move(parts)),
        [this](int status) { statuses_.push_back(status); }, EndedCall(),
        std::make_shared<CallRecord>(CallRecord::Caller()), absl::Now());
  }

  std::vector<int> statuses_;
};

TEST_F(WatchedAnswerTest, AnExceptionBeforeTheHeadIsAnAnswerOfItsOwn) {
  const auto answer = Watched({{}});
  EXPECT_FALSE(answer->Next().head.has_value());
  const HttpAnswer::Part part = answer->Next();
  ASSERT_TRUE(part.head.has_value());
  EXPECT_EQ(part.head->status, 500);
  EXPECT_THAT(part.bytes, HasSubstr(kInternalError));
  EXPECT_TRUE(part.last);
  EXPECT_THAT(statuses_, ElementsAre(500));
}

// The server breaks the connection off.
TEST_F(WatchedAnswerTest, OneBehindTheHeadIsPassedOn) {
  const auto answer = Watched({{.head = HttpHead{}, .bytes = "some"}});
  EXPECT_EQ(answer->Next().bytes, "some");
  EXPECT_THROW(answer->Next(), std::runtime_error);
  EXPECT_THAT(statuses_, ElementsAre(200));
}

}  // namespace
}  // namespace skein::coordinator
