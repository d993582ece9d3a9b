#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/host_port.h"
#include "base/list_item.h"
#include "base/mutex.h"
#include "base/status_util.h"
#include "base/test_util.h"
#include "base/tree_sum.h"
#include "base/units.h"

namespace skein {
namespace {

// A sum as it is written down.
struct Written {
  std::string text;
};
Written operator+(const Written& a, const Written& b) {
  return {"(" + a.text + "+" + b.text + ")"};
}

TEST(TreeSumTest, JoinsAsWritten) {
  const auto written = [](int64_t first, int64_t count) {
    return TreeSum(first, count, [](int64_t i) { return Written{std::to_string(i)}; }).text;
  };
  EXPECT_EQ(written(3, 1), "3");
  EXPECT_EQ(written(0, 3), "((0+1)+2)");
  EXPECT_EQ(written(0, 6), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(written(1, 8), "(((1+2)+(3+4))+((5+6)+(7+8)))");
  EXPECT_EQ(written(0, 9), "((((0+1)+(2+3))+((4+5)+(6+7)))+8)");
}

TEST(DTypeTest, NamesRoundTrip) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(DType parsed, ParseDType(DTypeName(dtype)));
    EXPECT_EQ(parsed, dtype);
  }
  EXPECT_THAT(ParseDType("I64"),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("I64")));
}

TEST(DTypeTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3f80);
  // Half way between 0x3f80 and 0x3f81: the even one; a bit above: the upper one.
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(Bf16ToFloat(FloatToBf16(-std::numeric_limits<float>::infinity())),
            -std::numeric_limits<float>::infinity());
}

TEST(DTypeTest, F16KnownValues) {
  EXPECT_EQ(F16ToFloat(0x3c00), 1.0f);
  EXPECT_EQ(F16ToFloat(0xc000), -2.0f);
  EXPECT_EQ(F16ToFloat(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(F16ToFloat(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(FloatToF16(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToF16(1e6f), 0x7c00);
}

// Of the same numbers, and of a row of outliers.
TEST(DTypeTest, HalvesAreThoseOfGgml) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "no ../shared: SKEIN_SHARED is not set";
  const auto read = [&](const std::string& name, auto item) {
    const absl::StatusOr<std::string> bytes =
        ReadFile(absl::StrCat(shared, "/data/quants/", name), 1 << 20);
    SKEIN_EXPECT_OK(bytes.status());
    std::vector<decltype(item)> items(bytes->size() / sizeof(item));
    std::memcpy(items.data(), bytes->data(), items.size() * sizeof(item));
    return items;
  };
  const std::vector<float> input = read("input.f32", float{});
  ASSERT_EQ(input.size(), 4u * 1024);
  const struct {
    const char* name;
    DType dtype;
    uint16_t (*convert)(float);
  } kCases[] = {{"f16", DType::kF16, FloatToF16}, {"bf16", DType::kBF16, FloatToBf16}};
  for (const auto& [name, dtype, convert] : kCases) {
    SCOPED_TRACE(name);
    const std::vector<uint16_t> halves = read(absl::StrCat(name, ".blocks"), uint16_t{});
    std::vector<uint16_t> got;
    for (float value : input) got.push_back(convert(value));
    EXPECT_EQ(got, halves);
    std::vector<float> floats(halves.size());
    ConvertToFloat(dtype, halves.data(), static_cast<int64_t>(halves.size()), floats.data());
    EXPECT_EQ(floats, read(absl::StrCat(name, ".f32"), float{}));
  }
}

TEST(ListItemTest, IsBrokenAtBlanks) {
  EXPECT_EQ(ListItem("a b"), "- a b\n");
  const std::string word(40, 'x'), longer(120, 'y');
  EXPECT_EQ(ListItem(word + " " + word + " " + word),
            "- " + word + " " + word + "\n  " + word + "\n");
  EXPECT_EQ(ListItem(longer + " z"), "- " + longer + "\n  z\n");
}

TEST(UnitsTest, ReadsWell) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(FormatBytesPerSecond(33.5e9), "33.5 GB/s");
  EXPECT_EQ(FormatBytesPerSecond(0.98e9), "1.0 GB/s");
  EXPECT_EQ(FormatBytesPerSecond(43.2e6), "43.2 MB/s");
  EXPECT_EQ(FormatMilliseconds(absl::Microseconds(1274)), "1.27 ms");
  EXPECT_EQ(FormatMilliseconds(absl::Seconds(12)), "12000 ms");
  EXPECT_EQ(FormatRate(1.23456), "1.235");
  EXPECT_EQ(FormatRate(999.96), "1000");
  EXPECT_EQ(FormatRate(123456.7), "123457");
  EXPECT_EQ(FormatCount(0, "core"), "0 cores");
  EXPECT_EQ(FormatCount(1, "core"), "1 core");
  EXPECT_EQ(FormatCount(2, "core"), "2 cores");
}

TEST(ClockTest, SimulatedMovesOnlyWhenTold) {
  SimulatedClock clock(absl::FromUnixSeconds(10));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(10));
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(12));
}

TEST(CondVarTest, ThreadsThatTakeTurnsNeverRunAtOnce) {
  constexpr int kTurns = 1000;
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  const auto take_turns = [&](int parity) {
    for (int i = 0; i < kTurns; ++i) {
      MutexLock lock(&mutex);
      while (turn % 2 != parity) changed.Wait(&mutex);
      ++turn;
      changed.NotifyOne();
    }
  };
  std::thread even(take_turns, 0);
  take_turns(1);
  even.join();
  EXPECT_EQ(turn, 2 * kTurns);
}

TEST(CondVarTest, AWaitEndsAtItsDeadlineOrWhenNotified) {
  using std::chrono::steady_clock;
  Mutex mutex;
  CondVar changed;
  bool set = false;
  const auto wait = [&](steady_clock::time_point deadline) {
    MutexLock lock(&mutex);
    while (!set) {
      if (!changed.WaitUntil(&mutex, deadline)) break;
    }
    return set;
  };
  const auto soon = steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_FALSE(wait(soon));
  EXPECT_GE(steady_clock::now(), soon);
  EXPECT_FALSE(wait(steady_clock::now() - std::chrono::seconds(1)));

  std::thread setter([&] {
    MutexLock lock(&mutex);
    set = true;
    changed.NotifyAll();
  });
  EXPECT_TRUE(wait(steady_clock::now() + std::chrono::seconds(60)));
  setter.join();
}

TEST(StatusTest, AnnotateKeepsCodeAndPrefixes) {
  EXPECT_THAT(Annotate(absl::NotFoundError("no such file"), "config.json"),
              StatusIs(absl::StatusCode::kNotFound, "config.json: no such file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

TEST(BytesTest, ReadsWhatWasWrittenAndNoticesTruncation) {
  ByteWriter writer;
  writer.Put(int32_t{7});
  writer.Put(std::string_view("abc"));
  writer.Put(std::vector<int32_t>{1, 2, 3});
  const std::string bytes = writer.Take();
  for (size_t size = 0; size <= bytes.size(); ++size) {
    ByteReader reader(std::string_view(bytes).substr(0, size));
    int32_t number;
    std::string text;
    std::vector<int32_t> list;
    reader.Get(number);
    reader.Get(text);
    reader.Get(list);
    EXPECT_EQ(reader.Done(), size == bytes.size()) << size;
    if (reader.ok()) {
      EXPECT_EQ(number, 7);
      EXPECT_EQ(text, "abc");
      EXPECT_EQ(list, (std::vector<int32_t>{1, 2, 3}));
    }
  }
}

TEST(HostPortTest, TakesNamesAndAddresses) {
  for (const char* text : {"head:50051", "127.0.0.1:0", "[::1]:65535", "a-b.c:1"}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const HostPort address, ParseHostPort(text));
    EXPECT_EQ(address.ToString(), text);
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const HostPort address, ParseHostPort("[::1]:80"));
  EXPECT_EQ(address.host, "[::1]");
  EXPECT_EQ(address.port, 80);
}

TEST(HostPortTest, LoopbackIsOfThisHostAlone) {
  for (const char* const host : {"localhost", "LocalHost", "127.0.0.1", "127.255.0.9", "[::1]"}) {
    EXPECT_TRUE((HostPort{host, 1}).IsLoopback()) << host;
  }
  for (const char* const host :
       {"0.0.0.0", "[::]", "10.0.0.1", "128.0.0.1", "localhost.example", "127.0.0.1.example"}) {
    EXPECT_FALSE((HostPort{host, 1}).IsLoopback()) << host;
  }
}

TEST(HostPortTest, RefusalsQuoteTheTextAndShowTheForm) {
  for (const std::string text : {"", "50051", "localhost", "localhost:", ":1", "h:65536", "h:-1",
                                 "h:x", "::1:80", "[::1]", "[]:1", "[::1:80", "http://h:80"}) {
    EXPECT_THAT(ParseHostPort(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(::testing::StartsWith("'" + text + "'"),
                                          ::testing::HasSubstr("HOST:PORT"))));
  }
  EXPECT_THAT(ParseHostPort("h:0", /*least_port=*/1),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("from 1 to")));
}

TEST(FileTest, WritesAndReads) {
  const std::string path = ::testing::TempDir() + "/file_test";
  const std::string contents("a\0b\n", 4);
  SKEIN_EXPECT_OK(CheckWritable(path));
  EXPECT_FALSE(std::filesystem::exists(path));  // a check leaves nothing
  SKEIN_ASSERT_OK(WriteFile(path, contents));
  SKEIN_EXPECT_OK(CheckWritable(path));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string read, ReadFile(path, 4));
  EXPECT_EQ(read, contents);
  EXPECT_EQ(*ReadFileOrPipe(path, 4), contents);
  SKEIN_EXPECT_OK(CheckWritable("/dev/null"));
  EXPECT_FALSE(WriteFile("/dev/full", contents).ok());
}

TEST(FileTest, ErrorsNameThePath) {
  const std::string file = ::testing::TempDir() + "/plain";
  SKEIN_ASSERT_OK(WriteFile(file, "x"));
  for (const std::string& path :
       {std::string(), ::testing::TempDir(), std::string("/nowhere/file"), file + "/below"}) {
    const auto names_it = ::testing::HasSubstr("'" + path + "': ");
    EXPECT_THAT(std::string(CheckWritable(path).message()), names_it);
    EXPECT_THAT(std::string(WriteFile(path, "x").message()), names_it);
    EXPECT_THAT(std::string(ReadFileOrPipe(path, 1).status().message()), names_it);
    EXPECT_THAT(std::string(ReadFile(path, 1).status().message()),
                ::testing::StartsWith(path + ": "));
  }
}

TEST(FileTest, WhatMayNotEndIsRefusedAtOnce) {
  const std::string pipe = ::testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = ::testing::TempDir() + "/link";
  std::filesystem::create_symlink("/dev/zero", link);
  const struct {
    std::string path;
    const char* says;
  } cases[] = {{pipe, ": not a regular file, but a pipe"},
               {link, ": not a regular file, but a device"},
               {"/dev/zero", ": not a regular file, but a device"},
               {::testing::TempDir(), ": not a regular file, but a folder"}};
  for (const auto& [path, says] : cases) {
    EXPECT_THAT(ReadFile(path, 1000),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(path + says)));
    EXPECT_THAT(OpenRegularFile(path).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(path + says)));
  }
}

TEST(FileTest, MoreThanTheLimitIsRefused) {
  const std::string file = ::testing::TempDir() + "/hole";
  SKEIN_ASSERT_OK(WriteFile(file, "12345"));
  EXPECT_EQ(*ReadFile(file, 5), "12345");
  const auto too_large = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(what));
  };
  EXPECT_THAT(ReadFile(file, 4), too_large(file + ": 5 bytes is more than the 4 bytes"));
  EXPECT_THAT(ReadFileOrPipe(file, 4), too_large(file + "': what it gives is more than the 4"));
  EXPECT_THAT(ReadFileOrPipe("/dev/zero", 100'000), too_large("more than the 100000 bytes"));
  // Files of the kernel have a size of 0.
  EXPECT_THAT(ReadFile("/proc/self/status", 10), too_large("more than the 10 bytes"));
  SKEIN_EXPECT_OK(ReadFile("/proc/self/status", 1 << 20).status());
  EXPECT_EQ(ReadFileOrEmpty(file), "12345");
  EXPECT_THAT(ReadFileOrEmpty("/proc/self/status"), ::testing::StartsWith("Name:"));
  EXPECT_EQ(ReadFileOrEmpty(file + ".none"), "");
  EXPECT_EQ(ReadFileOrEmpty("/dev/zero"), "");
  std::filesystem::resize_file(file, int64_t{20} << 30);
  EXPECT_THAT(ReadFile(file, 1 << 30),
              too_large(": 21474836480 bytes is more than the 1073741824"));
}

TEST(FileTest, APipeIsReadToItsEnd) {
  const std::string pipe = ::testing::TempDir() + "/pipe to read";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::signal(SIGPIPE, SIG_IGN);
  const std::string contents(200'000, 'x');
  for (const int64_t limit : {200'000, 199'999}) {
    std::thread writer([&] {
      const int end = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
      for (size_t done = 0; done < contents.size();) {
        const ssize_t count = write(end, contents.data() + done, contents.size() - done);
        if (count < 0) break;  // the reader has had enough
        done += static_cast<size_t>(count);
      }
      close(end);
    });
    const absl::StatusOr<std::string> read = ReadFileOrPipe(pipe, limit);
    writer.join();
    EXPECT_EQ(read.ok(), limit == 200'000);
    EXPECT_EQ(read.value_or(contents), contents);
  }
}

}  // namespace
}  // namespace skein
