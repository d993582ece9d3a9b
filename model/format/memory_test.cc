// A rank must not hold more of a file than the slices that it asked for.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/format/safetensors.h"
#include "model/format/test_files.h"

namespace skein::model {
namespace {

constexpr int64_t kRows = 24 * 1024;
constexpr int64_t kColumns = 4096;  // of BF16: rows of 8 KiB, 192 MiB together
constexpr int64_t kFileBytes = kRows * kColumns * 2;
// The window of a strided read, and what the allocator keeps.
constexpr int64_t kSlackBytes = 16 << 20;

// A field of /proc/self/status, in bytes.
int64_t ProcessMemory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    int64_t kib = 0;
    if (name == field + ":" && status >> kib) return kib * 1024;
    std::getline(status, name);
  }
  ADD_FAILURE() << "no " << field << " in /proc/self/status";
  return 0;
}

// A sparse file: its pages are read as zeros, and enter the page cache as any other's.
std::string MakeFile() {
  const std::string path = FreshFolder() + "/large.safetensors";
  const std::string header = "{\"t\":{\"dtype\":\"BF16\",\"shape\":[" + std::to_string(kRows) +
                             "," + std::to_string(kColumns) + "],\"data_offsets\":[0," +
                             std::to_string(kFileBytes) + "]}}";
  WriteTestFile(path, SafetensorsBytes(header, ""));
  std::filesystem::resize_file(path, 8 + header.size() + kFileBytes);
  return path;
}

TEST(MemoryTest, AShardIsAllThatStaysInMemory) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto source, OpenSafetensors(MakeFile()));
  const TensorInfo& tensor = source->tensors()[0];
  const struct {
    const char* name;
    Range rows;
    Range columns;
  } kCases[] = {
      {"an eighth of the columns", {0, kRows}, {512, 1024}},
      {"a quarter of the columns", {0, kRows}, {3072, 4096}},
      {"a quarter of the rows", {kRows / 4, kRows / 2}, {0, kColumns}},
  };
  int64_t copied_bytes = 0;
  for (const auto& test : kCases) {  // the smallest first, since a peak does not go down
    SCOPED_TRACE(test.name);
    const int64_t bytes = test.rows.size() * test.columns.size() * 2;
    const int64_t rss_before = ProcessMemory("VmRSS");
    const int64_t file_before = ProcessMemory("RssFile");
    {
      std::vector<std::byte> shard(static_cast<size_t>(bytes));
      SKEIN_ASSERT_OK(source->Read(tensor, {test.rows, test.columns}, absl::MakeSpan(shard)));
      EXPECT_LE(ProcessMemory("RssFile") - file_before, 1 << 20);
      EXPECT_LE(ProcessMemory("VmHWM") - rss_before, bytes + kSlackBytes);
    }
    copied_bytes += bytes;
    EXPECT_EQ(source->bytes_read(), copied_bytes);
  }
}

}  // namespace
}  // namespace skein::model
