#include "base/log/line_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

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

TEST_F(LineWriterTest, TellsHowManyWereDropped) {
  LineWriter writer(ends_[1], /*queue_bytes=*/1000);
  const std::string line(99, 'x');
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) writer.Write(line);
  std::thread reader([&] { ReadUntil("after them\n"); });
  writer.Flush(kPatience);  // or there may be no room for the last one
  writer.Write("after them");
  reader.join();
  const std::string_view told = " lines were dropped here)\n";
  int64_t lines = 0;
  for (size_t at = 0; (at = said_.find(line, at)) != std::string::npos; at += line.size()) ++lines;
  int64_t dropped = 0;
  for (size_t at = 0; (at = said_.find(told, at)) != std::string::npos; at += told.size()) {
    const size_t begin = said_.rfind('(', at) + 1;
    dropped += std::stol(said_.substr(begin, at - begin));
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(lines + dropped, kLines);
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

TEST_F(LineWriterTest, AFlushWaitsForWhatWasSaidAndNoLonger) {
  LineWriter writer(ends_[1]);
  writer.Write("one");
  writer.Flush(kPatience);
  EXPECT_EQ(ReadUntil("one\n"), "one\n");
  for (int i = 0; i < 5000; ++i) writer.Write(std::string(99, 'x'));  // more than the pipe holds
  writer.Flush(absl::Milliseconds(20));
  writer.Write("last");
  ReadUntil("last\n");
}

}  // namespace
}  // namespace skein
