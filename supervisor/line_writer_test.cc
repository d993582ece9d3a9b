#include "supervisor/line_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "supervisor/line_splitter.h"

namespace skein::supervisor {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);

class LineWriterTest : public ::testing::Test {
 protected:
  LineWriterTest() {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe(ends_.data()), 0);
  }

  // Until `text` was read; everything so far.
  std::string ReadUntil(const std::string& text) {
    std::array<char, 4096> bytes;
    while (said_.find(text) == std::string::npos) {
      const ssize_t count = read(ends_[0], bytes.data(), bytes.size());
      if (count <= 0) break;
      said_.append(bytes.data(), count);
    }
    return said_;
  }

  std::array<int, 2> ends_{};
  std::string said_;
};

TEST_F(LineWriterTest, WritesLines) {
  LineWriter writer(ends_[1]);
  writer.Write("one");
  writer.Write("");
  writer.Write("three");
  EXPECT_EQ(writer.Close(kPatience), 0);
  EXPECT_EQ(ReadUntil("three\n"), "one\n\nthree\n");
}

TEST_F(LineWriterTest, DropsWholeLinesAndTellsHowMany) {
  LineWriter writer(ends_[1], /*queue_bytes=*/1000);
  const std::string line(99, 'x');
  // The pipe holds 64 KiB, the thread one line more, the queue ten.
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) writer.Write(line);
  const int64_t dropped = writer.Close(absl::ZeroDuration());
  EXPECT_GT(dropped, kLines - 800);
  EXPECT_LE(dropped, kLines);
}

TEST_F(LineWriterTest, TellsTheNumberInItsPlace) {
  LineWriter writer(ends_[1], /*queue_bytes=*/1000);
  const std::string line(99, 'x');
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) writer.Write(line);
  ReadUntil(line);
  const std::string_view told = " lines were dropped here)\n";
  ReadUntil(std::string(told));
  writer.Write("after it");
  const std::string said = ReadUntil("after it\n");
  const size_t end = said.find(told);
  ASSERT_NE(end, std::string::npos);
  const size_t begin = said.rfind('(', end);
  const int64_t number = std::stol(said.substr(begin + 1, end - begin));
  int64_t lines = 0;
  for (size_t at = 0; (at = said.find(line, at)) != std::string::npos; at += line.size()) ++lines;
  EXPECT_EQ(lines + number, kLines);
}

TEST_F(LineWriterTest, AFullDiskDropsAndDoesNotWait) {
  const int full = open("/dev/full", O_WRONLY);
  LineWriter writer(full);
  for (int i = 0; i < 10; ++i) writer.Write("lost");
  EXPECT_EQ(writer.Close(kPatience), 10);
}

TEST_F(LineWriterTest, AReaderThatIsGoneEndsNothing) {
  close(ends_[0]);
  LineWriter writer(ends_[1]);
  for (int i = 0; i < 10; ++i) writer.Write("lost");
  EXPECT_EQ(writer.Close(kPatience), 10);
}

std::vector<std::string> Split(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  for (const std::string& piece : pieces) splitter.Add(piece);
  splitter.Finish();
  return lines;
}

TEST(LineSplitterTest, JoinsAndSplits) {
  EXPECT_THAT(Split({"a", "b\n\nc\nd", "e"}), ElementsAre("ab", "", "c", "de"));
  EXPECT_THAT(Split({"a\n", "b\n"}), ElementsAre("a", "b"));
  EXPECT_THAT(Split({}), ElementsAre());
}

TEST(LineSplitterTest, CutsWhatIsTooLong) {
  const std::string longest(LineSplitter::kMaxBytes, 'x');
  EXPECT_THAT(Split({longest + "\n", "b\n"}), ElementsAre(longest, "b"));
  EXPECT_THAT(Split({longest + "yz\nb"}), ElementsAre(longest, "yz", "b"));
}

}  // namespace
}  // namespace skein::supervisor
