#include "parallel/comm/shared_memory/shared_memory.h"

#include <unistd.h>

#include <string>

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using absl::StatusCode;

constexpr char kCookie[] = "0123456789abcdef0123456789abcdef";

TEST(SharedMemoryTest, IsSharedByThoseWhoKnowIt) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto ours, SharedMemory::Create(4096, kCookie));
  SKEIN_ASSERT_OK_AND_ASSIGN(auto theirs,
                             SharedMemory::Attach(getpid(), ours->fd(), 4096, kCookie));
  ours->CloseFile();
  EXPECT_NE(ours->data(), theirs->data());
  EXPECT_EQ(theirs->data()[4095], std::byte{0});
  ours->data()[4095] = std::byte{7};
  EXPECT_EQ(theirs->data()[4095], std::byte{7});
}

TEST(SharedMemoryTest, IsNotMistakenForAnother) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto ours, SharedMemory::Create(4096, kCookie));
  std::string other = kCookie;
  other.back() = 'x';
  EXPECT_THAT(SharedMemory::Attach(getpid(), ours->fd(), 4096, other),
              StatusIs(StatusCode::kNotFound, testing::_));
  EXPECT_THAT(SharedMemory::Attach(getpid(), ours->fd(), 4097, kCookie),
              StatusIs(StatusCode::kNotFound, testing::_));
  EXPECT_FALSE(SharedMemory::Attach(getpid(), 9999, 4096, kCookie).ok());
}

}  // namespace
}  // namespace skein::comm
