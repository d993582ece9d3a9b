#include "parallel/comm/mpi/shared_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SharedSegments, AreFoundByRank) {
  const std::string maps =
      "5590-5591 r-xp 00000000 fe:01 123 /usr/bin/worker\n"
      "7f00-7f01 rw-s 00000000 00:19 4 /dev/shm/vader_segment.vm.0.6eb30001.1\n"
      "7f02-7f03 rw-s 00001000 00:19 4 /dev/shm/vader_segment.vm.0.6eb30001.1\n"
      "7f04-7f05 rw-s 00000000 00:19 5 /dev/shm/vader_segment.vm.0.6eb30001.11\n"
      "7f06-7f07 rw-s 00000000 00:19 6 /scratch/sm_segment.node 7.1000.1f.1\n"
      "7f08-7f09 rw-s 00000000 00:19 7 /dev/shm/vader_segment.vm.0.6eb30001.1 (deleted)\n"
      "7f0a-7f0b rw-s 00000000 00:19 8 /dev/shm/other.1\n"
      "7f0c-7f0d rw-p 00000000 00:00 0 [heap]\n"
      "7f0e-7f0f rw-p 00000000 00:00 0";
  EXPECT_THAT(SegmentsOfRank(maps, 1), ElementsAre("/dev/shm/vader_segment.vm.0.6eb30001.1",
                                                   "/scratch/sm_segment.node 7.1000.1f.1"));
  EXPECT_THAT(SegmentsOfRank(maps, 11), ElementsAre("/dev/shm/vader_segment.vm.0.6eb30001.11"));
  EXPECT_THAT(SegmentsOfRank(maps, 2), IsEmpty());
  EXPECT_THAT(SegmentsOfRank("", 1), IsEmpty());
}

TEST(SharedSegments, LoseTheirNamesAndGetThemBack) {
  const std::string path = testing::TempDir() + "/sm_segment.host.0.1.3";
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_EXCL, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(memory, MAP_FAILED);
  close(file);

  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> other, UnlinkSegments(4));
  EXPECT_THAT(other, IsEmpty());
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> own, UnlinkSegments(3));
  ASSERT_EQ(own.size(), 1u);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  *static_cast<char*>(memory) = 1;  // the memory stays
  RestoreSegmentNames(own);
  EXPECT_EQ(unlink(path.c_str()), 0);
  munmap(memory, 4096);
}

}  // namespace
}  // namespace skein::comm
