#include "base/cache_folder.h"

#include "gtest/gtest.h"

namespace skein {
namespace {

TEST(CacheFolderTest, IsWhereTheSpecificationHasIt) {
  EXPECT_EQ(CacheFolder("/cache", "/home/a"), "/cache/skein");
  EXPECT_EQ(CacheFolder(nullptr, "/home/a"), "/home/a/.cache/skein");
  // Paths that are not absolute are to be ignored.
  EXPECT_EQ(CacheFolder("cache", "/home/a"), "/home/a/.cache/skein");
  EXPECT_EQ(CacheFolder("", ""), "");
  EXPECT_EQ(CacheFolder(nullptr, nullptr), "");
}

}  // namespace
}  // namespace skein
