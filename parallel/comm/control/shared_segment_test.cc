#include "parallel/comm/control/shared_segment.h"

#include <unistd.h>

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using absl::StatusCode;

constexpr char kCookie[] = "0123456789abcdef0123456789abcdef";

TEST(SharedSegment, IsSharedByThoseWhoKnowIt) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto ours, SharedSegment::Create(3, 4096, kCookie));
  SKEIN_ASSERT_OK_AND_ASSIGN(auto theirs,
                             SharedSegment::Attach(getpid(), ours->fd(), 3, 4096, kCookie));
  ours->CloseFile();
  EXPECT_NE(&ours->bell(1), &theirs->bell(1));
  ours->bell(1).Ring();
  EXPECT_EQ(theirs->bell(1).Count(), 1u);
  EXPECT_EQ(theirs->bell(2).Count(), 0u);
  for (int rank = 0; rank < 3; ++rank) {
    ours->ring_to(rank).bytes[4095] = static_cast<char>(rank);
    theirs->ring_from(rank).bytes[0] = static_cast<char>(10 + rank);
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(theirs->ring_to(rank).bytes[4095], rank);
    EXPECT_EQ(ours->ring_from(rank).bytes[0], 10 + rank);
    EXPECT_EQ(ours->ring_to(rank).state->written, 0u);
  }
}

TEST(SharedSegment, IsNotMistakenForAnother) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto ours, SharedSegment::Create(3, 4096, kCookie));
  std::string other = kCookie;
  other.back() = 'x';
  EXPECT_THAT(SharedSegment::Attach(getpid(), ours->fd(), 3, 4096, other),
              StatusIs(StatusCode::kNotFound, testing::_));
  EXPECT_THAT(SharedSegment::Attach(getpid(), ours->fd(), 4, 4096, kCookie),
              StatusIs(StatusCode::kNotFound, testing::_));
  EXPECT_FALSE(SharedSegment::Attach(getpid(), 9999, 3, 4096, kCookie).ok());
}

}  // namespace
}  // namespace skein::comm
